import { word } from './word.js';
export function register(api) {
  api.registerTool({ name: 'es-module.act', inputSchema: {}, run: async () => word });
}
