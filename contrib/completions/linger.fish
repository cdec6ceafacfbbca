# fish: complete linger's commands, options, and the names of sessions, models, agents and questions.
# linger completions fish | source, or save it as ~/.config/fish/completions/linger.fish.

function __linger_complete
    for line in (linger complete --line (commandline -cp | string collect) 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline -ct)
            case ':dirs'
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end

complete -c linger -f -a '(__linger_complete)'
