#!/usr/bin/env node
const { word } = require('./lib/word');
module.exports.register = (api) => api.registerTool({ name: 'no-package.act', inputSchema: {}, run: () => word });
