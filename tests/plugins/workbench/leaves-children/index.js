const { spawn } = require('node:child_process');
module.exports.register = (api) => {
  api.registerTool({
    name: 'leaves-children.act',
    inputSchema: {},
    run: () => {
      for (const detached of [true, false]) spawn('sleep', ['300'], { detached, stdio: detached ? 'ignore' : 'inherit' }).unref();
      return 'done';
    },
  });
};
