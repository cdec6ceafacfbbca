// A Chromium without a window, driven over its DevTools protocol through two pipes: nothing but Node's standard library.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// The one time-out: what is waited for comes within this, or the case has failed.
const TIMEOUT_MS = Number(process.env.PAGE_TIMEOUT_MS ?? 30_000);

export class Browser {
  static async start(program) {
    const profile = mkdtempSync(join(tmpdir(), 'page-'));
    const args = ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-extensions', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--no-proxy-server', '--hide-scrollbars', '--mute-audio', '--remote-debugging-pipe',
      `--user-data-dir=${profile}`, 'about:blank'];
    const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    return new Browser(child, profile);
  }

  constructor(child, profile) {
    Object.assign(this, { child, profile, last: 0, answers: new Map(), pages: new Map() });
    let rest = '';
    child.stdio[4].setEncoding('utf8').on('data', (text) => {
      rest += text;
      for (let end; (end = rest.indexOf('\0')) >= 0; rest = rest.slice(end + 1)) this.heard(JSON.parse(rest.slice(0, end)));
    });
  }

  heard({ id, error, result, method, params, sessionId }) {
    if (id === undefined) return void this.pages.get(sessionId)?.heard(method, params);
    const { done, no } = this.answers.get(id);
    this.answers.delete(id);
    if (error) no(new Error(error.message));
    else done(result);
  }

  send(method, params = {}, sessionId) {
    this.last += 1;
    this.child.stdio[3].write(`${JSON.stringify({ id: this.last, method, params, sessionId })}\0`);
    return new Promise((done, no) => this.answers.set(this.last, { done, no }));
  }

  // A page of its own: no cookies and no storage of another one.
  async page({ width = 1200, height = 800, mobile = false, dark = false } = {}) {
    const { browserContextId } = await this.send('Target.createBrowserContext');
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank', browserContextId });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const page = new Page(this, sessionId);
    this.pages.set(sessionId, page);
    await page.send('Page.enable');
    await page.send('Runtime.enable');
    await page.send('Network.enable');
    await page.send('Log.enable');
    await page.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: mobile ? 2 : 1, mobile });
    await page.colours(dark ? 'dark' : 'light');
    return page;
  }

  async end() {
    const ended = once(this.child, 'exit');
    this.send('Browser.close').catch(() => {});
    await Promise.race([ended, new Promise((done) => setTimeout(done, 5000).unref())]);
    this.child.kill('SIGKILL');
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 3 });
  }
}

class Page {
  constructor(browser, id) {
    // `problems`: what a page must not have, such as errors, refused resources and dialogs. `requests`: the addresses it asked for.
    Object.assign(this, { browser, id, problems: [], requests: [] });
  }

  heard(method, params) {
    if (method === 'Runtime.exceptionThrown') this.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === 'Runtime.consoleAPICalled') this.problems.push(`console: ${params.args.map((it) => it.value).join(' ')}`);
    if (method === 'Log.entryAdded' && params.entry.source !== 'network') this.problems.push(`${params.entry.source}: ${params.entry.text}`);
    if (method === 'Page.javascriptDialogOpening') {
      this.problems.push(`dialog: ${params.message}`);
      this.send('Page.handleJavaScriptDialog', { accept: false });
    }
    if (method === 'Network.requestWillBeSent') this.requests.push(params.request.url);
  }

  send(method, params) {
    return this.browser.send(method, params, this.id);
  }

  async goto(url) {
    await this.send('Page.navigate', { url });
  }

  async reload() {
    await this.send('Page.reload');
  }

  // The value of an expression in the page; promises are waited for.
  async eval(expression) {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  // Waits until an expression has a value that is true: asked in each frame of the page, and after a navigation again.
  async until(expression, what = expression) {
    const began = Date.now();
    for (;;) {
      const left = TIMEOUT_MS - (Date.now() - began);
      if (left <= 0) throw new Error(`not within ${TIMEOUT_MS} ms: ${what}\n${await this.eval('document.body?.innerText?.slice(-3000)')}`);
      const wait = `new Promise((done) => {
        const end = performance.now() + ${Math.min(left, 2000)};
        const look = () => { const it = ${expression}; if (it || performance.now() > end) done(it); else requestAnimationFrame(look); };
        look();
      })`;
      const found = await this.eval(wait).catch((error) => (/context|navigat|Cannot find|null|undefined/i.test(error.message) ? null : Promise.reject(error)));
      if (found) return found;
    }
  }

  shows(text) {
    return this.until(`document.body?.innerText.includes(${JSON.stringify(text)})`, `the page shows ${JSON.stringify(text)}`);
  }

  click(selector) {
    return this.until(`(() => { const it = document.querySelector(${JSON.stringify(selector)}); if (!it || it.disabled || it.hidden) return false; it.click(); return true; })()`, `${selector} can be clicked`);
  }

  // Light or dark, and nothing that moves.
  colours(value) {
    const features = [{ name: 'prefers-color-scheme', value }, { name: 'prefers-reduced-motion', value: 'reduce' }];
    return this.send('Emulation.setEmulatedMedia', { features });
  }

  // A key as a person presses it.
  async key(key, modifiers = 0) {
    const text = key.length === 1 ? key : key === 'Enter' ? '\r' : undefined;
    const code = { Enter: 13, Escape: 27, ArrowDown: 40, ArrowUp: 38, Tab: 9 }[key] ?? key.toUpperCase().charCodeAt(0);
    await this.send('Input.dispatchKeyEvent', { type: 'keyDown', key, text: modifiers ? undefined : text, windowsVirtualKeyCode: code, modifiers });
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', key, windowsVirtualKeyCode: code, modifiers });
  }

  async type(text) {
    await this.send('Input.insertText', { text });
  }

  async picture() {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png', optimizeForSpeed: false });
    return Buffer.from(data, 'base64');
  }
}
