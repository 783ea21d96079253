module.exports.register = async (api) => {
  await new Promise((resolve) => setTimeout(resolve, 200));
  api.registerTool({ name: 'registers-slowly.act', inputSchema: {}, run: () => 'done' });
};
