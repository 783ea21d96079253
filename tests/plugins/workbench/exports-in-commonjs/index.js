export function register(api) {
  api.registerTool({ name: 'exports-in-commonjs.act', inputSchema: { type: 'object' }, run: () => 'done' });
}
