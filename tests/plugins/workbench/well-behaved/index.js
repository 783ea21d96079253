module.exports.register = (api) => {
  api.registerTool({
    name: 'well-behaved.act',
    description: 'Does it.',
    inputSchema: { type: 'object', properties: { n: { type: 'number', description: 'How many.' } } },
    run: async () => ({ content: 'done' }),
  });
};
