class Plugin {
  #word = 'done';
  register(api) {
    api.registerTool({ name: 'class-instance.act', inputSchema: {}, run: () => this.#word });
  }
}
module.exports = new Plugin();
