module.exports.register = (api) => {
  api.registerTool({ name: 'aborts.act', inputSchema: {}, run: () => process.kill(process.pid, 'SIGABRT') && new Promise(() => {}) });
};
