module.exports.register = async (api) => {
  api.registerTool({ name: 'register-never-ends.act', inputSchema: {}, run: () => 'done' });
  await new Promise(() => {});
};
