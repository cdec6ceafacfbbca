# bash: complete linger's commands, options, and the names of sessions, models, agents and questions.
# eval "$(linger completions bash)", or save it as ~/.local/share/bash-completion/completions/linger.

_linger() {
    local word values=()
    local IFS=$'\n'
    # COMP_WORDS is cut at `:` and `=` too: the line up to the cursor is not.
    local line=${COMP_LINE:0:COMP_POINT}
    for word in $(linger complete --line "$line" 2>/dev/null); do
        case $word in
            :files) compopt -o default ;;
            :dirs) compopt -o default -o dirnames ;;
            *) values+=("${word%%$'\t'*}") ;;
        esac
    done
    # What stands before the last `:` or `=` of the word is not replaced.
    local current=${line##* } prefix=
    case $current in
        *[:=]*) prefix=${current%"${current##*[:=]}"} ;;
    esac
    COMPREPLY=()
    for word in "${values[@]}"; do
        COMPREPLY+=("${word#"$prefix"}")
    done
    # The values are whole words; one that an option begins (`--mode=`) goes on.
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -F _linger linger
