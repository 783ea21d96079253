module.exports.register = (api) => {
  for (const name of ['well-behaved.act', 'takes-a-name.act']) {
    api.registerTool({ name, inputSchema: {}, run: () => 'done' });
  }
};
