// The plugin PLUGIN_NAME, for Workbench and anyplug. Its process stays up, so variables last from call to call.
// What it prints is its log: console.log('...'), then `anyplug -e . logs PLUGIN_NAME`.

module.exports.register = (api) => {
  // A second tool is a second registerTool. Agents see name, description and inputSchema.
  api.registerTool({
    name: 'TOOL_NAME',
    description: 'Count the words of a text.',
    inputSchema: {
      type: 'object',
      properties: {
        text: { type: 'string', description: 'The text to look at.' },
      },
      required: ['text'],
    },
    // `content` is the answer, `error` says that it failed and why, `metadata` is for programs.
    run: async ({ text = '' }) => {
      const words = text.split(/\s+/).filter(Boolean);
      if (words.length === 0) return { content: 'There is no text to count.', error: 'the text is empty' };
      return { content: `words: ${words.length}`, metadata: { words: words.length } };
    },
  });
};
