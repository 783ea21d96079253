// Answers calls of OPA's builtins: one call per line on stdin, one answer per line on stdout.
//
// A call is {"f": NAME, "a": [ARGUMENT, ...]}. Values are JSON, save that an object is {"o": [[KEY, VALUE], ...]}
// and a set is {"s": [MEMBER, ...]}, so that no kind of value is lost. An answer is {"v": [VALUE, ...]} (empty:
// undefined), {"e": MESSAGE} for an error that OPA turns into undefined, or {"h": MESSAGE} for one that ends the
// evaluation. An empty line ends a batch: its answers are written then. `capabilities` as an argument prints the builtins of this version instead.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"
	"github.com/open-policy-agent/opa/v1/version"
)

type call struct {
	F string            `json:"f"`
	A []any             `json:"a"`
	M map[string]string `json:"m"`
	I any               `json:"i"`
}

var (
	capabilities = ast.CapabilitiesForThisVersion()
	now          = ast.NumberTerm(json.Number("1700000000000000000"))
)

func decode(raw any) *ast.Term {
	switch value := raw.(type) {
	case nil:
		return ast.NullTerm()
	case bool:
		return ast.BooleanTerm(value)
	case string:
		return ast.StringTerm(value)
	case json.Number:
		return ast.NumberTerm(value)
	case []any:
		terms := make([]*ast.Term, len(value))
		for index, item := range value {
			terms[index] = decode(item)
		}
		return ast.ArrayTerm(terms...)
	case map[string]any:
		if members, found := value["s"]; found {
			set := ast.NewSet()
			for _, item := range members.([]any) {
				set.Add(decode(item))
			}
			return ast.NewTerm(set)
		}
		object := ast.NewObject()
		for _, pair := range value["o"].([]any) {
			object.Insert(decode(pair.([]any)[0]), decode(pair.([]any)[1]))
		}
		return ast.NewTerm(object)
	}
	panic(fmt.Sprintf("no value: %T", raw))
}

func encode(term *ast.Term) any {
	switch value := term.Value.(type) {
	case ast.Null:
		return nil
	case ast.Boolean:
		return bool(value)
	case ast.String:
		return string(value)
	case ast.Number:
		if !json.Valid([]byte(value)) {
			return map[string]any{"n": string(value)} // such as .5, which to_number takes over as it is
		}
		return json.Number(value)
	case *ast.Array:
		items := make([]any, 0, value.Len())
		value.Foreach(func(item *ast.Term) { items = append(items, encode(item)) })
		return items
	case ast.Set:
		items := make([]any, 0, value.Len())
		value.Foreach(func(item *ast.Term) { items = append(items, encode(item)) })
		return map[string]any{"s": items}
	case ast.Object:
		pairs := make([]any, 0, value.Len())
		value.Foreach(func(key, item *ast.Term) { pairs = append(pairs, []any{encode(key), encode(item)}) })
		return map[string]any{"o": pairs}
	}
	panic(fmt.Sprintf("no value: %T", term.Value))
}

func answer(line []byte) (result map[string]any) {
	defer func() {
		if reason := recover(); reason != nil {
			result = map[string]any{"h": fmt.Sprint("panic: ", reason)}
		}
	}()
	var asked call
	reader := json.NewDecoder(bytes.NewReader(line))
	reader.UseNumber()
	if err := reader.Decode(&asked); err != nil {
		panic(err)
	}
	if asked.M != nil {
		return evaluated(asked)
	}
	function := topdown.GetBuiltin(asked.F)
	if function == nil {
		return map[string]any{"h": "no such builtin"}
	}
	operands := make([]*ast.Term, len(asked.A))
	for index, raw := range asked.A {
		operands[index] = decode(raw)
	}
	values := []any{}
	bctx := topdown.BuiltinContext{
		Context: context.Background(), Time: now, Seed: rand.Reader, Cache: builtins.Cache{},
		Location: ast.NewLocation(nil, "call.rego", 1, 1), Capabilities: capabilities,
	}
	err := function(bctx, operands, func(term *ast.Term) error {
		values = append(values, encode(term))
		return nil
	})
	if err != nil {
		var halt topdown.Halt
		if errors.As(err, &halt) {
			return map[string]any{"h": err.Error()}
		}
		return map[string]any{"e": err.Error()}
	}
	return map[string]any{"v": values}
}

// evaluated answers {"f": QUERY, "m": {FILE: MODULE}, "i": INPUT}: what the query's first expression gives.
func evaluated(asked call) map[string]any {
	options := []func(*rego.Rego){rego.Query(asked.F), rego.Input(asked.I)}
	for name, text := range asked.M {
		options = append(options, rego.Module(name, text))
	}
	found, err := rego.New(options...).Eval(context.Background())
	if err != nil {
		return map[string]any{"h": err.Error()}
	}
	values := []any{}
	for _, each := range found {
		values = append(values, each.Expressions[0].Value)
	}
	return map[string]any{"v": values}
}

func main() {
	var output bytes.Buffer // of one batch: nobody reads while a batch is still being written
	writer := json.NewEncoder(&output)
	writer.SetEscapeHTML(false)
	if len(os.Args) > 1 && os.Args[1] == "capabilities" {
		names := map[string]int{}
		for _, each := range ast.CapabilitiesForThisVersion().Builtins {
			names[each.Name] = each.Decl.Arity()
		}
		writer.SetIndent("", " ")
		writer.Encode(map[string]any{"version": version.Version, "builtins": names})
		os.Stdout.Write(output.Bytes())
		return
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		if len(line) > 1 {
			writer.Encode(answer(line))
			continue
		}
		os.Stdout.Write(output.Bytes()) // an empty line ends a batch
		output.Reset()
	}
}
