#!/usr/bin/env bash
# The extension PLUGIN_NAME, for zot and anyplug: a JSON object on each line, in on stdin, out on stdout.
# What goes to stderr is its log: echo "..." >&2, then `anyplug -e . logs PLUGIN_NAME`.
set -uo pipefail

# The tool: prints its answer; or the reason, if it returns 1.
count() {
    local -a words=()
    read -rd '' -a words <<<"$1"
    if ((${#words[@]} == 0)); then
        echo "there is no text to count"
        return 1
    fi
    echo "words: ${#words[@]}"
}

# Gives a text of the frame by its key. That is enough for flat arguments which are texts; `jq` reads all others.
text_of() {
    local pattern='"'$1'" *: *"([^"\\]*(\\.[^"\\]*)*)"' text
    [[ $frame =~ $pattern ]] || return
    text=${BASH_REMATCH[1]//\\\\/$'\1'} # a backslash of the text itself is put aside, and is no escape
    text=${text//\\\"/\"} text=${text//\\\//\/}
    printf -v text '%b' "$text" # the other escapes of JSON are those of printf
    printf '%s' "${text//$'\1'/\\}"
}

# Writes a text as JSON.
quote() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\t'/\\t}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

# Models see name, description and schema. A frame is one line; a second tool is a second register_tool.
cat <<'END_OF_FRAMES'
{"type":"hello","name":"PLUGIN_NAME","version":"0.1.0","capabilities":["tools"]}
{"type":"register_tool","name":"TOOL_NAME","description":"Count the words of a text.","schema":{"type":"object","properties":{"text":{"type":"string","description":"The text to look at"}},"required":["text"]}}
{"type":"ready"}
END_OF_FRAMES

while IFS= read -r frame; do
    case $(text_of type) in
        tool_call) # with a second tool, `text_of name` says which of them it is
            failed=false
            answer=$(count "$(text_of text)") || failed=true
            printf '{"type":"tool_result","id":%s,"content":[{"type":"text","text":%s}],"is_error":%s}\n' \
                "$(quote "$(text_of id)")" "$(quote "$answer")" "$failed"
            ;;
        shutdown)
            echo '{"type":"shutdown_ack"}'
            exit
            ;;
    esac
done
