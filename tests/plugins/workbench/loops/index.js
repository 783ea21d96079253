module.exports.register = (api) => {
  api.registerTool({
    name: 'loops.act',
    inputSchema: {},
    run: () => {
      for (;;);
    },
  });
};
