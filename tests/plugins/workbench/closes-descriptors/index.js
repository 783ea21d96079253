const fs = require('node:fs');
module.exports.register = (api) => {
  api.registerTool({ name: 'closes-descriptors.act', inputSchema: {}, run: () => fs.closeSync(4) });
};
