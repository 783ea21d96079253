// Resolves for `import` what the folders around the plugin do not have: electron's stand-in, and modules beside the
// folder in which a link to the plugin lies.

import { pathToFileURL } from 'node:url';

let given;

export function initialize(data) {
  given = data;
}

export async function resolve(specifier, context, next) {
  if (specifier === 'electron') return { url: given.electron, format: 'commonjs', shortCircuit: true };
  try {
    return await next(specifier, context);
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND' || /^[./]|:/.test(specifier)) throw error;
    for (const folder of given.searched) {
      try {
        return await next(specifier, { ...context, parentURL: pathToFileURL(`${folder}/../`).href });
      } catch {
        // the next one may have it
      }
    }
    throw error;
  }
}
