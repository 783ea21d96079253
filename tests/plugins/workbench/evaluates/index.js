// Runs what it is given, so that a test shows what a tool does.
const fs = require('node:fs');
const state = {};
module.exports.register = (api) => {
  const tool = { name: 'evaluates.act', description: 'Runs it.', inputSchema: { type: 'object', properties: { js: { type: 'string' } }, required: ['js'] } };
  tool.run = function (input) {
    return new Function('api', 'state', 'input', 'require', 'fs', input.js).call(this, api, state, input, require, fs);
  };
  api.registerTool(tool);
};
