#compdef linger
# zsh: complete linger's commands, options, and the names of sessions, models, agents and questions.
# source <(linger completions zsh), or save it as _linger in a directory of $fpath.

_linger() {
    local line value about files=0
    local -a values shown
    for line in ${(f)"$(linger complete --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)"}; do
        case $line in
            :files) files=1 ;;
            :dirs) files=2 ;;
            *)
                value=${line%%$'\t'*}
                about=${line#*$'\t'}
                values+=("$value")
                if [[ $about == "$line" || -z $about ]]; then
                    shown+=("$value")
                else
                    shown+=("$value  -- $about")
                fi
                ;;
        esac
    done
    (( ${#values} )) && compadd -l -d shown -a values
    case $files in
        1) _files ;;
        2) _files -/ ;;
    esac
}

if [[ ${funcstack[1]:-} == _linger ]]; then
    _linger "$@"
else
    compdef _linger linger
fi
