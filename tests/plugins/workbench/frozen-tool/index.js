'use strict';
const tool = Object.freeze({ name: 'frozen-tool.act', inputSchema: Object.freeze({}), run: async () => 'done' });
module.exports.register = (api) => api.registerTool(tool);
