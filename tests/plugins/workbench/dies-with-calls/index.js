let calls = 0;
module.exports.register = (api) => {
  api.registerTool({
    name: 'dies-with-calls.act',
    inputSchema: {},
    run: () => {
      if (++calls === 10) process.kill(process.pid, 'SIGKILL');
      return new Promise(() => {});
    },
  });
};
