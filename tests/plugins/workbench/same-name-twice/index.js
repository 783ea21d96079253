module.exports.register = (api) => {
  for (const [name, word] of [['same-name-twice.act', 'first'], ['same-name-twice.other', 'other'], ['same-name-twice.act', 'done']]) {
    api.registerTool({ name, description: word, inputSchema: {}, run: () => word });
  }
};
