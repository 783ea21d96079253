const fs = require('node:fs');
console.log('on the console while it loads');
module.exports.register = (api) => {
  process.stdout.write('half a line');
  api.registerTool({
    name: 'prints.act',
    inputSchema: {},
    run: async () => {
      for (let n = 0; n < 3000; n++) {
        console.log(`{"type":"result","id":"${n}"}`);
        process.stdout.write(`${'x'.repeat(200)}\n`);
        fs.writeSync(1, 'straight to the descriptor\n');
        console.error('and there');
      }
      return 'done';
    },
  });
};
