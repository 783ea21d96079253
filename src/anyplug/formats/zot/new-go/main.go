// The extension PLUGIN_NAME, for zot and anyplug: a JSON object on each line, in on stdin, out on stdout.
// What goes to stderr is its log: fmt.Fprintln(os.Stderr, "..."), then `anyplug -e . logs PLUGIN_NAME`.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

type object = map[string]any

// A second tool is a second entry. Models see name, description and schema, and read what run returns.
var tools = map[string]struct {
	description string
	schema      object
	run         func(args json.RawMessage) (string, error)
}{
	"TOOL_NAME": {
		description: "Count the words of a text.",
		schema: object{
			"type":       "object",
			"properties": object{"text": object{"type": "string", "description": "The text to look at"}},
			"required":   []string{"text"},
		},
		run: func(args json.RawMessage) (string, error) {
			var given struct{ Text string }
			if err := json.Unmarshal(args, &given); err != nil {
				return "", err
			}
			words := strings.Fields(given.Text)
			if len(words) == 0 {
				return "", errors.New("there is no text to count")
			}
			return fmt.Sprintf("words: %d", len(words)), nil
		},
	},
}

var (
	writing sync.Mutex
	out     = json.NewEncoder(os.Stdout)
)

func send(frame object) {
	writing.Lock()
	defer writing.Unlock()
	_ = out.Encode(frame)
}

type frame struct {
	Type, ID, Name string
	Args           json.RawMessage
}

func call(f frame) {
	text, err := "", error(nil)
	if tool, ok := tools[f.Name]; ok {
		text, err = tool.run(f.Args)
	} else {
		err = fmt.Errorf("there is no tool %s", f.Name)
	}
	if err != nil {
		text = err.Error()
	}
	content := []object{{"type": "text", "text": text}}
	send(object{"type": "tool_result", "id": f.ID, "content": content, "is_error": err != nil})
}

func main() {
	send(object{"type": "hello", "name": "PLUGIN_NAME", "version": "0.1.0", "capabilities": []string{"tools"}})
	for name, tool := range tools {
		send(object{"type": "register_tool", "name": name, "description": tool.description, "schema": tool.schema})
	}
	send(object{"type": "ready"})
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var f frame
		if json.Unmarshal(line, &f) != nil {
			continue
		}
		switch f.Type {
		case "tool_call":
			go call(f)
		case "shutdown":
			send(object{"type": "shutdown_ack"})
			return
		}
	}
}
