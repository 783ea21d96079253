process.on('SIGTERM', () => {});
process.on('exit', () => {
  for (;;);
});
module.exports.register = (api) => {
  api.registerTool({ name: 'never-leaves.act', inputSchema: {}, run: () => 'done' });
};
