module.exports.register = (api) => {
  for (const name of ['builtin.shell', 'mcp.files.read', 'bash', 'reserved-names.act']) {
    api.registerTool({ name, inputSchema: {}, run: () => 'done' });
  }
};
