const { clipboard, app } = require('electron');
module.exports.register = (api) => {
  api.registerTool({
    name: 'uses-the-clipboard.act',
    inputSchema: {},
    run: () => {
      clipboard.writeText('done');
      return clipboard.readText();
    },
  });
  api.registerTool({ name: 'electron.app', run: () => app.getPath('home') });
  api.registerTool({ name: 'electron.window', run: () => new (require('electron').BrowserWindow)() });
  api.registerTool({ name: 'electron.image', run: () => clipboard.readImage() });
  api.registerTool({ name: 'electron.rest', run: () => [clipboard.availableFormats(), clipboard.clear(), clipboard.availableFormats()] });
};
