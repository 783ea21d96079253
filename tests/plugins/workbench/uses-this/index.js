module.exports.register = (api) => {
  api.registerTool({
    name: 'uses-this.act',
    inputSchema: { type: 'object' },
    word: 'done',
    run() {
      return `${this.word} in ${this._sourceFolder}`;
    },
  });
};
