// The tools of the MCP server PLUGIN_NAME. What goes to stderr is its log: console.error("..."), then
// `anyplug -e . logs PLUGIN_NAME`.

export const server = { name: "PLUGIN_NAME", version: "0.1.0" };

interface Tool {
  description: string;
  inputSchema: object;
  run(given: any): Promise<string>;
}

// A second tool is a second entry. Agents see name, description and inputSchema, and read what `run` gives or throws.
export const tools: Record<string, Tool> = {
  count: {
    description: "Count the words of a text. Returns their number.",
    inputSchema: {
      type: "object",
      properties: { text: { type: "string", description: "The text to look at" } },
      required: ["text"],
    },
    async run({ text = "" }: { text?: string }) {
      const words = text.split(/\s+/).filter(Boolean);
      if (words.length === 0) throw new Error("there is no text to count");
      return `words: ${words.length}`;
    },
  },
};
