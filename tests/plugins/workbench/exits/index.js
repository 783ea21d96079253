module.exports.register = (api) => {
  api.registerTool({ name: 'exits.act', inputSchema: {}, run: () => process.exit(7) });
};
