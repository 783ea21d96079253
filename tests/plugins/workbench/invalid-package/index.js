module.exports.register = (api) => api.registerTool({ name: 'invalid-package.act', inputSchema: {}, run: () => 'done' });
