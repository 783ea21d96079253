import electron, { clipboard } from 'electron';
export const register = (api) => {
  api.registerTool({
    name: 'imports-the-clipboard.act',
    inputSchema: {},
    run: async () => {
      clipboard.writeText('done');
      return (await import('electron')).clipboard.readText();
    },
  });
  api.registerTool({ name: 'imported.app', run: () => electron.app.quit() });
};
