module.exports.register = (api) => {
  api.registerTool({ name: 'never-answers.act', inputSchema: {}, run: () => new Promise(() => {}) });
};
