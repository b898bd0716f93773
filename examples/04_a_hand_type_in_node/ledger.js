// A hand type: ledgers, to which lines are added and from which they are read.
//
//     node ledger.js SOCKET PROTOS
//
// It keeps calls whose watcher left, so its hands and their calls outlive the daemon: `replay`.
'use strict';

const { EventEmitter } = require('node:events');
const { rmSync } = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [socket, protos] = process.argv.slice(2);
const contract = loader.loadSync('carpal/v1/hand.proto', {
  includeDirs: [protos],
  keepCase: true,
  enums: String,
});
const { Hand } = grpc.loadPackageDefinition(contract).carpal.v1;

// The tools: what the model reads of each, and what it does. One that throws ToolError ran and failed.

class ToolError extends Error {}

const TOOLS = {
  add: {
    description: 'Add a line to the ledger.',
    properties: { line: { type: 'string', description: 'One line, without its end.' } },
    required: ['line'],
    async run(ledger, { line }) {
      if (line.includes('\n')) throw new ToolError('that is more than one line: add them one by one');
      ledger.push(line);
      return `added; the ledger has ${ledger.length}`;
    },
  },
  lines: {
    description: 'Read the lines of the ledger, oldest first.',
    properties: { pause: { type: 'number', description: 'Seconds before each line.' } },
    async run(ledger, { pause = 0 }, call) {
      for (const line of ledger) {
        await sleep(pause * 1000, undefined, { signal: call.stopping.signal });
        call.say(`${line}\n`);
      }
      return ledger.length ? ledger.map((line) => `${line}\n`).join('') : 'the ledger is empty';
    },
  },
};

// A call: it goes on whoever watches, and keeps what it gave until that is acknowledged.

class Call extends EventEmitter {
  steps = [];
  ended = false;
  acknowledged = false;
  stopping = new AbortController();
  #bytes = 0;

  async run(ledger, tool, input) {
    try {
      this.#end('OUTCOME_OK', await tool.run(ledger, input, this));
    } catch (error) {
      if (this.stopping.signal.aborted) this.#end('OUTCOME_CANCELLED', 'stopped');
      else if (error instanceof ToolError) this.#end('OUTCOME_ERROR', error.message);
      else this.#end('OUTCOME_ERROR', `the tool failed: ${error}`);
    }
  }

  say(text) {
    const data = Buffer.from(text);
    this.#give({ output: { offset: this.#bytes, data } });
    this.#bytes += data.length;
  }

  #end(outcome, content) {
    this.ended = true;
    this.#give({ result: { outcome, content, output_bytes: this.#bytes } });
  }

  #give(step) {
    this.steps.push(step);
    this.emit('step', step);
  }
}

// The service. A hand is its ledger and its calls by their ids.

const hands = new Map();

function schema(properties, required = []) {
  const object = { type: 'object', properties, required, additionalProperties: false };
  return Buffer.from(JSON.stringify(object));
}

function Describe(_, answer) {
  const tools = Object.entries(TOOLS).map(([name, { description, properties, required }]) => (
    { name, description, input_schema: schema(properties, required) }
  ));
  answer(null, {
    types: [{
      type: 'ledger',
      description: 'A ledger: lines are added and read, and never changed.',
      tools,
      config_schema: schema({ title: { type: 'string', description: 'Its first line.' } }),
      capabilities: ['replay'],
    }],
  });
}

function Provision(stream) {
  const { title } = JSON.parse(stream.request.config);
  hands.set(stream.request.hand_id, { ledger: title ? [title] : [], calls: new Map() });
  stream.write({ result: { note: title ? `The ledger begins with ${title}.` : 'It is empty.' } });
  stream.end();
}

function Execute(stream) {
  const { hand_id, call_id, name, input } = stream.request;
  const hand = hands.get(hand_id);
  const refuse = (details) => stream.emit('error', { code: grpc.status.NOT_FOUND, details });
  if (!hand) return refuse(`there is no hand ${hand_id}`);
  if (!TOOLS[name]) return refuse(`there is no tool ${name}`);
  let call = hand.calls.get(call_id);
  if (!call) {
    hand.calls.set(call_id, (call = new Call()));
    call.run(hand.ledger, TOOLS[name], JSON.parse(input));
  }
  const give = (step) => {
    stream.write(step);
    if (step.result) stream.end();
  };
  call.steps.forEach(give);
  call.on('step', give);
  stream.on('close', () => call.off('step', give));
  stream.on('cancelled', () => call.off('step', give));
}

function Cancel({ request }, answer) {
  const call = hands.get(request.hand_id)?.calls.get(request.call_id);
  if (!call) return answer(null, { state: 'CALL_STATE_UNKNOWN' });
  call.stopping.abort();
  answer(null, { state: call.ended ? 'CALL_STATE_TERMINAL' : 'CALL_STATE_RUNNING' });
}

function Release({ request }, answer) {
  hands.get(request.hand_id)?.calls.forEach((call) => call.stopping.abort());
  hands.delete(request.hand_id);
  answer(null, { ended: true });
}

// What `replay` asks for beside: which calls are kept, and that they may be forgotten.

function ListHands(_, answer) {
  const listed = [...hands].map(([hand_id, { calls }]) => {
    const those = (of) => [...calls].filter(([, call]) => of(call)).map(([call_id]) => call_id);
    return {
      hand_id,
      open_call_ids: those((call) => !call.ended),
      unacknowledged_call_ids: those((call) => call.ended && !call.acknowledged),
    };
  });
  answer(null, { hands: listed });
}

function Acknowledge({ request }, answer) {
  for (const call_id of request.call_ids) {
    const call = hands.get(request.hand_id)?.calls.get(call_id);
    if (!call?.ended) continue;
    call.acknowledged = true;
    call.steps = call.steps.slice(-1); // the result stays, so that the id never runs again
  }
  answer(null, {});
}

const server = new grpc.Server();
server.addService(Hand.service, {
  Describe, Provision, Execute, Cancel, Release, ListHands, Acknowledge,
});
rmSync(socket, { force: true }); // of one that was killed
server.bindAsync(`unix:${socket}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  console.log(`serving on ${socket}`);
});
process.once('SIGTERM', () => process.exit(0));
