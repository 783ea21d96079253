module.exports.register = async (api) => {
  await api.reloadPlugins();
  api.registerTool({ name: 'reloads-in-register.act', inputSchema: {}, run: () => 'done' });
};
