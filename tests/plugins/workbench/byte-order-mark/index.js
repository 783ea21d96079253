module.exports.register = (api) => api.registerTool({ name: 'byte-order-mark.act', inputSchema: {}, run: () => 'done' });
