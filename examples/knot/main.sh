#!/usr/bin/env bash
# Tells how to tie a knot. Bash has no JSON, so the two functions in the middle read and write what a frame needs.
set -uo pipefail

declare -A steps=(
    [bowline]=$'Make a small loop.\nUp through the loop comes the end,\nround behind the standing part,\nand back down through the loop.'
    [reef]=$'Right over left and under.\nLeft over right and under.'
    [clove-hitch]=$'Once round the post.\nCross over, once round again.\nTuck the end under the crossing.'
    [figure-eight]=$'Make a loop.\nPass the end behind the standing part.\nDown through the loop.'
)
known="bowline, clove-hitch, figure-eight, reef"

# Puts every text, number and word of a JSON object into `field`: field[id], field[args.name]
declare -A field
token='^[[:space:]]*("([^"\\]|\\.)*"|[][{},:]|[^][{},:"[:space:]]+)'
parse() {
    local rest=$1 key="" value path IFS=.
    local -a above=()
    field=()
    while [[ $rest =~ $token ]]; do
        value=${BASH_REMATCH[1]} rest=${rest:${#BASH_REMATCH[0]}}
        case $value in
            '{' | '[') above+=("$key") ;;
            '}' | ']') ((${#above[@]})) && unset 'above[-1]' ;;
            ',' | ':') ;;
            *)
                if [[ $value == '"'* ]]; then
                    value=${value:1:-1} value=${value//\\\"/\"} value=${value//\\\//\/}
                    printf -v value '%b' "$value" # JSON's other escapes are printf's too
                fi
                if [[ $rest =~ ^[[:space:]]*: ]]; then
                    key=$value
                else
                    path="${above[*]}.$key" path=${path#.}
                    [ -z "$path" ] || field[$path]=$value
                fi
                ;;
        esac
    done
}

# Writes a text as JSON
quote() {
    local text=$1
    text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\t'/\\t}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

printf '%s\n' '{"type":"hello","name":"knot","version":"1.0.0","capabilities":["commands","tools"]}'
printf '%s\n' '{"type":"register_command","name":"knot","description":"how to tie a knot"}'
printf '%s\n' '{"type":"register_tool","name":"tie_knot","description":"Tell how to tie a knot, step by step.","schema":{"type":"object","properties":{"knot":{"type":"string","enum":["bowline","clove-hitch","figure-eight","reef"]}},"required":["knot"]}}'
printf '%s\n' '{"type":"ready"}'

while IFS= read -r line; do
    parse "$line"
    id=$(quote "${field[id]:-}")
    case ${field[type]:-} in
        command_invoked)
            name=${field[args]:-}
            if [ -z "$name" ]; then
                printf '{"type":"command_response","id":%s,"action":"display","display":%s}\n' "$id" "$(quote "I know $known")"
            elif [ -n "${steps[$name]:-}" ]; then
                printf '{"type":"command_response","id":%s,"action":"display","display":%s}\n' "$id" "$(quote "${steps[$name]}")"
            else
                printf '{"type":"command_response","id":%s,"action":"noop","error":%s}\n' "$id" "$(quote "no knot \"$name\"; I know $known")"
            fi
            ;;
        tool_call)
            name=${field[args.knot]:-none} failed=false
            text=${steps[$name]:-}
            if [ -z "$text" ]; then
                text="no knot \"$name\"; I know $known" failed=true
            fi
            printf '{"type":"tool_result","id":%s,"content":[{"type":"text","text":%s}],"is_error":%s}\n' "$id" "$(quote "$text")" "$failed"
            ;;
        shutdown)
            printf '%s\n' '{"type":"shutdown_ack"}'
            exit 0
            ;;
    esac
done
