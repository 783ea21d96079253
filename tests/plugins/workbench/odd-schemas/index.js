const run = (input) => ({ content: JSON.stringify(input) });
const cycle = {};
cycle.self = cycle;
const schemas = { act: undefined, none: null, text: 'object', list: [], yes: true, cycle, json: { toJSON: () => 'x' }, big: { n: 1n }, broken: { type: 'nonsense', required: true } };
module.exports.register = (api) => {
  for (const [name, inputSchema] of Object.entries(schemas)) api.registerTool({ name: `odd-schemas.${name}`, description: 7, inputSchema, run });
};
