#!/usr/bin/env bash
# A tool of the plugin PLUGIN_NAME, for Stavrobot and anyplug: parameters on stdin, an answer on stdout, both JSON.
#
# A second tool is a second folder with its own manifest.json. What a person has to set, such as an API key, is declared
# as "config" in ../manifest.json and read from ../config.json.
set -uo pipefail

# Gives a text of the parameters by its name. That is enough for texts; `jq` reads all others.
text_of() {
    local pattern='"'$1'" *: *"([^"\\]*(\\.[^"\\]*)*)"' text
    [[ $parameters =~ $pattern ]] || return
    text=${BASH_REMATCH[1]//\\\\/$'\1'} # a backslash of the text itself is put aside, and is no escape
    text=${text//\\\"/\"} text=${text//\\\//\/}
    printf -v text '%b' "$text" # the other escapes of JSON are those of printf
    printf '%s' "${text//$'\1'/\\}"
}

parameters=$(cat)
words=()
read -rd '' -a words <<<"$(text_of text)"
if ((${#words[@]} == 0)); then
    echo "there is no text to count" >&2 # with exit code 1: it failed, and the agent reads this
    exit 1
fi
printf '{"words": %d}\n' "${#words[@]}"
