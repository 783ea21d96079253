module.exports.register = (api) => {
  setTimeout(() => api.registerTool({ name: 'registers-later.act', inputSchema: {}, run: () => 'done' }), 300);
};
