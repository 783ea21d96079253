module.exports.register = (api) => api.registerTool({ name: 'answers-in-sync.act', inputSchema: {}, run: () => 'done' });
