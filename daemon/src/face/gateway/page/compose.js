// What a person says to a session: the prompt with its files and pictures, model, mode, effort and tools, cancel and continue.

import { cleanLine } from './clean.js';
import { byId, dialog, el, failed, fill, picture, toast } from './dom.js';
import { bytes, tokens } from './format.js';
import { Failure, call, change, http } from './wire.js';

const PICTURE = 512 << 10, PICTURE_SIDE = 1568, ROWS = 12; // As a request to the gateway has 1 MiB, a larger picture is drawn smaller
const FILE = 64 << 20; // What the gateway takes as a file
let modes = []; // Those of the daemon
const EFFORTS = ['auto', 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

const base64 = (file) => new Promise((done, no) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result.slice(reader.result.indexOf(',') + 1));
  reader.onerror = () => no(new Failure(`${file.name} cannot be read`));
  reader.readAsDataURL(file);
});

async function smaller(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, PICTURE_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width: bitmap.width * scale, height: bitmap.height * scale });
  canvas.getContext('2d').drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, 'image/jpeg', 0.8));
}

export class Compose {
  // `row()` is the session that is shown, `can(what)` says what the grant allows.
  // `waits(prompt)`: whether it is queued or a draft.
  constructor({ row, can, changed, waits }) {
    Object.assign(this, { row, can, changed, waits, files: [], drafts: new Map(), session: null, own: [] });
    this.prompt = byId('prompt');
    fill(byId('effort'), EFFORTS.map((name) => el('option', { value: name }, `effort: ${name}`)));
    byId('compose').addEventListener('submit', (event) => {
      event.preventDefault();
      this.send();
    });
    this.prompt.addEventListener('input', () => this.grow());
    this.prompt.addEventListener('keydown', (event) => {
      const plain = !event.shiftKey && !event.altKey && !event.isComposing;
      // A phone's Enter is a new line: there is a button.
      if (event.key !== 'Enter' || !plain || (matchMedia('(pointer: coarse)').matches && !event.ctrlKey)) return;
      event.preventDefault();
      this.send(event.ctrlKey || event.metaKey ? 'steer' : undefined);
    });
    this.prompt.addEventListener('paste', (event) => this.take(event.clipboardData.files) && event.preventDefault());
    byId('attach').addEventListener('click', () => byId('file').click());
    byId('file').addEventListener('change', () => {
      this.take(byId('file').files);
      byId('file').value = '';
    });
    for (const name of ['dragover', 'drop']) {
      byId('main').addEventListener(name, (event) => {
        event.preventDefault();
        if (name === 'drop') this.take(event.dataTransfer.files);
      });
    }
    for (const id of ['mode', 'effort']) byId(id).addEventListener('change', () => this.set({ [id]: byId(id).value }));
    byId('model').addEventListener('click', () => chooseModel((model) => this.set({ model }), this.row()?.model));
    byId('tools').addEventListener('click', () => showTools(this.row().session, can('steer') && ((tools) => this.set({ tools }))));
    byId('cancel').addEventListener('click', () => this.cancel());
    byId('resume').addEventListener('click', () => this.act('session/continue'));
  }
  begin() { return call('mode/list').then((all) => this.draw(fill(byId('mode'), (modes = all).map((it) => el('option', { value: it.mode, title: it.description }, `mode: ${it.mode}`))))); }
  act(method, params = {}) { return change(method, { session: this.row().session, ...params }).catch(failed); }
  // Stops the turn; what this page had queued behind it comes back into the field, each once: the daemon gives a prompt back once.
  async cancel() {
    const { session } = this.row();
    const queued = this.own.filter((it) => it.session === session && this.waits(it.prompt));
    this.own = this.own.filter((it) => this.waits(it.prompt) && !queued.includes(it));
    await this.act('session/cancel');
    const back = [];
    for (const it of queued) {
      await change('session/unqueue', { session, prompt: it.prompt }).then(() => back.push(it), () => {});
    }
    if (!back.length) return;
    const now = this.session === session ? { text: this.prompt.value, files: this.files } : this.drafts.get(session) ?? {};
    const text = [...back.map((it) => it.text), now.text].filter(Boolean).join('\n\n');
    const all = { text, files: [...back.flatMap((it) => it.files), ...(now.files ?? [])] };
    if (this.session === session) this.put(all);
    else this.drafts.set(session, all);
  }
  set(params) { return this.act('session/set', params).then(() => this.changed()); }

  grow() { this.prompt.rows = Math.min(ROWS, this.prompt.value.split('\n').length); }

  // Another session is shown: what was written stays with the one before.
  swap(session) {
    this.drafts.set(this.session, { text: this.prompt.value, files: this.files });
    this.session = session;
    this.put(this.drafts.get(session));
  }
  put({ text = '', files = [] } = {}) {
    this.prompt.value = text;
    this.files = files;
    this.grow();
    this.drawFiles();
  }
  draw() {
    const row = this.row();
    byId('compose').hidden = !row || !this.can('speak');
    if (!row) return;
    const isRunning = row.state === 'running' || row.state === 'waiting';
    if (document.activeElement !== byId('mode')) byId('mode').value = row.mode;
    if (document.activeElement !== byId('effort')) byId('effort').value = row.effort ?? 'auto';
    fill(byId('model'), cleanLine(row.model));
    for (const id of ['mode', 'effort', 'model']) byId(id).disabled = !this.can('steer');
    byId('when').hidden = !isRunning;
    byId('cancel').hidden = !isRunning;
    byId('resume').hidden = !(row.state === 'offered' || (row.state === 'idle' && (row.queued > 0 || row.drafts > 0)));
    for (const option of byId('when').options) option.disabled = option.value !== 'queue' && !this.can('steer');
    this.prompt.placeholder = isRunning ? 'Queue a prompt, or steer with Ctrl+Enter' : 'Message';
  }
  take(list) {
    const files = [...list];
    for (const file of files) {
      if (file.size > FILE) failed(new Failure(`${file.name} has ${bytes(file.size)}`, { hint: `at most ${bytes(FILE)} can be sent` }));
      else this.files.push({ file, isPicture: /^image\/(png|jpeg|gif|webp)$/.test(file.type) });
    }
    this.drawFiles();
    return files.length > 0;
  }
  drawFiles() {
    fill(byId('files'), this.files.map((it) => {
      const thumb = it.isPicture ? picture(it.file, 'thumb') : null;
      const remove = el('button', { type: 'button', class: 'quiet', 'aria-label': `Remove ${it.file.name}`, click: () => {
        this.files = this.files.filter((other) => other !== it);
        this.drawFiles();
      } }, '×');
      return el('span', { class: 'file' }, thumb, `${cleanLine(it.file.name)} · ${bytes(it.file.size)}`, remove);
    }));
  }
  async content(text, files) {
    const blocks = [];
    for (const { file, isPicture } of files) {
      if (isPicture) {
        const small = file.size > PICTURE ? await smaller(file) : file;
        blocks.push({ type: 'image', media_type: small.type, data: await base64(small) });
      } else {
        const headers = { 'Content-Type': file.type || 'application/octet-stream', 'X-Original-Filename': encodeURIComponent(file.name) };
        const { id } = await (await http('/artifact/', { method: 'POST', body: file, headers })).json();
        text += `\n\nartifact:${id} (${file.name})`;
      }
    }
    return blocks.length ? [...blocks, ...(text.trim() ? [{ type: 'text', text }] : [])] : text.trim();
  }
  async send(when) {
    const { session, files } = this;
    const text = this.prompt.value;
    if (!text.trim() && !files.length) return;
    const params = { session, when: byId('when').hidden ? 'queue' : when ?? byId('when').value, expand: text.startsWith('/') || undefined };
    this.put();
    try {
      const { prompt } = await change('session/prompt', { ...params, content: await this.content(text, files) });
      if (params.when === 'queue') this.own.push({ session, prompt, text, files });
    } catch (error) {
      failed(error);
      // What could not be sent is there again, unless something else was written meanwhile.
      if (this.session === session && !this.prompt.value) this.put({ text, files });
    }
  }
}

// A dialog with a list of buttons and a field that filters them; Enter takes what was typed where nothing fits.
export function choose(title, placeholder, rows, pick, empty) {
  const input = el('input', { placeholder, 'aria-label': placeholder, autocomplete: 'off' });
  const list = el('div', { class: 'choices' });
  const node = dialog(title, input, list);
  input.focus();
  let latest = 0;
  const draw = async () => {
    const mine = (latest += 1);
    const found = await rows(input.value.trim());
    if (mine !== latest) return;
    fill(list, found.map((it) => el('button', { class: 'choice', click: () => {
      node.close();
      pick(it);
    } }, el('span', { class: 'title' }, it.title), it.sub ? el('span', { class: 'sub' }, it.sub) : null)),
      found.length ? null : el('p', { class: 'hint' }, empty ?? 'Nothing fits.'));
  };
  input.addEventListener('input', () => draw().catch(failed));
  node.addEventListener('keydown', (event) => {
    const buttons = [...list.querySelectorAll('button')];
    const at = buttons.indexOf(document.activeElement);
    if (event.key === 'ArrowDown') (buttons[at + 1] ?? input).focus();
    else if (event.key === 'ArrowUp') (at > 0 ? buttons[at - 1] : input).focus();
    else if (event.key === 'Enter' && document.activeElement === input) buttons[0]?.click();
    else return;
    event.preventDefault();
  });
  draw().catch(failed);
  return node;
}

export function chooseModel(pick, current) {
  let models = null;
  const rows = async (words) => {
    models ??= await call('model/list');
    const all = models.filter((it) => it.ready || it.model === current);
    const found = all.filter((it) => it.model.includes(words)).map((it) => ({
      title: cleanLine(it.model), model: it.model,
      sub: [it.context_window ? `${tokens(it.context_window)} context` : '', it.input_price === undefined ? '' : `$${it.input_price} / $${it.output_price} per million`,
        it.model === current ? 'current' : ''].filter(Boolean).join(' · '),
    }));
    if (words && !found.some((it) => it.model === words)) found.push({ title: `Use “${cleanLine(words)}”`, model: words });
    return found;
  };
  const node = choose('Model', 'provider/model', rows, (it) => pick(it.model), 'No model can be used: `linger key` says which keys are missing.');
  const all = el('button', { class: 'more', click: async () => {
    all.disabled = true;
    models = await call('model/list', { all: true }).catch((error) => failed(error) ?? models);
    node.querySelector('input').dispatchEvent(new Event('input'));
  } }, 'Ask the providers for all of theirs');
  node.append(all);
}

// The tools of a session, and those that it could have; `set` gives it other ones.
async function showTools(session, set) {
  const [rows, own] = await Promise.all([call('session/list', { matching: session }), call('tool/list', { session })]).catch((error) => failed(error) ?? []);
  if (!own) return;
  const others = (rows[0]?.tools && (await call('tool/list', { cwd: rows[0].cwd }).catch(failed))) || [];
  const all = own.concat(others.filter((it) => !own.some((has) => has.name === it.name)));
  const verdicts = { allow: 'runs', ask: 'asks', deny: 'never runs' };
  const boxes = all.map((it) => el('input', { type: 'checkbox', checked: own.includes(it), disabled: !set, name: it.name, 'aria-label': cleanLine(it.name) }));
  const use = () => node.close() ?? set(boxes.every((it) => it.checked) ? ['*'] : boxes.filter((it) => it.checked).map((it) => it.name));
  const node = dialog('Tools of this session', el('p', { class: 'hint' }, 'What a call needs depends on the mode and on rules.'),
    el('div', { class: 'choices' }, all.map((it, n) => el('details', { class: 'card' }, el('summary', {}, boxes[n], el('span', { class: 'name' }, cleanLine(it.name)),
      el('span', { class: 'first' }, [it.effect, it.server].filter(Boolean).map(cleanLine).join(' · ')),
      el('span', { class: 'said-short' }, it.verdict ? `${verdicts[it.verdict.verdict] ?? ''} (${cleanLine(it.verdict.by)})` : '')),
    el('pre', { class: 'said plain' }, it.description)))), set ? el('div', { class: 'buttons' }, el('button', { class: 'big yes', click: use }, 'Use these')) : null);
}

// A new session: where, with which model, mode, agent and tools.
export function newSession({ cwds, cwd, created }) {
  const id = (name) => `new-${name}`;
  const field = (name, label, node, hint) => el('div', { class: 'field' }, el('label', { for: id(name) }, label), node, hint ? el('small', { class: 'hint' }, hint) : null);
  const directory = el('input', { id: id('cwd'), value: cwd ?? '', list: 'cwds', autocomplete: 'off', placeholder: '/home/you/project' });
  const name = el('input', { id: id('name'), autocomplete: 'off', placeholder: 'optional' });
  const model = el('button', { id: id('model'), type: 'button', click: () => chooseModel((it) => (model.textContent = it)) }, 'the default');
  const mode = el('select', { id: id('mode') }, el('option', { value: '' }, 'the default'), modes.map((it) => el('option', { value: it.mode }, `${it.mode}: ${it.description}`)));
  const agent = el('select', { id: id('agent') }, el('option', { value: '' }, 'none'));
  const tools = el('div', { class: 'checks' });
  const fault = el('p', { class: 'fault', role: 'alert' });
  const more = el('details', { class: 'card', toggle: () => more.open && fillIn() }, el('summary', {}, 'Agent and tools'), field('agent', 'Agent', agent), el('div', { class: 'field' }, el('span', {}, 'Tools'), tools));
  const fillIn = async () => {
    const where = { cwd: directory.value };
    const [agents, all] = await Promise.all([call('agent/list', where).catch(() => []), call('tool/list', where).catch((error) => failed(error) ?? [])]);
    fill(agent, el('option', { value: '' }, 'none'), agents.filter((it) => it.status === 'active').map((it) => el('option', { value: it.name }, cleanLine(it.name))));
    fill(tools, all.map((it) => el('label', {}, el('input', { type: 'checkbox', checked: true, name: it.name }), ` ${cleanLine(it.name)}`)));
  };
  const create = async (event) => {
    event.preventDefault();
    fill(fault);
    const boxes = [...tools.querySelectorAll('input')];
    const some = boxes.some((it) => !it.checked) ? boxes.filter((it) => it.checked).map((it) => it.name) : undefined;
    const chosen = model.textContent === 'the default' ? undefined : model.textContent;
    const params = { cwd: directory.value.trim(), name: name.value.trim() || undefined, model: chosen, mode: mode.value || undefined, agent: agent.value || undefined, tools: some, login_env: true };
    try {
      const { session, warning } = await change('session/create', params);
      if (warning) toast(warning);
      node.close();
      created(session);
    } catch (error) {
      fill(fault, error.message, error.hint ? ` – ${error.hint}` : '');
    }
  };
  const node = dialog('New session', el('form', { class: 'fields', submit: create }, field('cwd', 'Directory', directory), field('name', 'Name', name), field('model', 'Model', model),
    field('mode', 'Mode', mode), more, fault, el('div', { class: 'buttons' }, el('button', { class: 'big yes' }, 'Create'))),
  el('datalist', { id: 'cwds' }, cwds.map((it) => el('option', { value: it }))));
  directory.focus();
}
