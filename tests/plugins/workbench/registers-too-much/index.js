module.exports.register = (api) => {
  for (let n = 0; n < 1200; n++) api.registerTool({ name: n ? `many.${n}` : 'registers-too-much.act', inputSchema: {}, run: () => 'done' });
};
