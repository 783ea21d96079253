// An agent on the official TypeScript SDK: connects, lists, calls, asks its user, and prints what it saw as JSON.
// node agent.mjs '{"sdk": 1|2, "mode": "legacy"|"auto", "command": [...] | "url": "…", "token": "…", "tools": […]}'

const given = JSON.parse(process.argv[2]);
const asked = [];
const answer = (request) => {
  asked.push(request.params.message);
  return { action: 'accept', content: { answer: 'once' } };
};
const about = { name: 'agent', version: '1' };
const options = { capabilities: { elicitation: {} } };

let client, Stdio, Http;
if (given.sdk === 1) {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { ElicitRequestSchema } = await import('@modelcontextprotocol/sdk/types.js');
  ({ StdioClientTransport: Stdio } = await import('@modelcontextprotocol/sdk/client/stdio.js'));
  ({ StreamableHTTPClientTransport: Http } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js'));
  client = new Client(about, options);
  client.setRequestHandler(ElicitRequestSchema, answer);
} else {
  const sdk = await import('@modelcontextprotocol/client');
  ({ StdioClientTransport: Stdio } = await import('@modelcontextprotocol/client/stdio'));
  Http = sdk.StreamableHTTPClientTransport;
  client = new sdk.Client(about, { ...options, versionNegotiation: { mode: given.mode } });
  client.setRequestHandler('elicitation/create', answer);
}

const headers = { authorization: `Bearer ${given.token}` };
const transport = given.url
  ? new Http(new URL(given.url), { requestInit: { headers } })
  : new Stdio({ command: given.command[0], args: given.command.slice(1), env: process.env, stderr: 'inherit' });
await client.connect(transport);
const seen = { tools: (await client.listTools()).tools.map((tool) => tool.name), calls: [] };
seen.prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
for (const [name, args] of given.calls) {
  seen.calls.push(await client.callTool({ name, arguments: args }));
}
seen.prompt = await client.getPrompt({ name: 'greet', arguments: { args: 'Ada' } });
seen.asked = asked;
seen.version = client.getNegotiatedProtocolVersion?.() ?? null;
await client.close();
console.log(JSON.stringify(seen));
