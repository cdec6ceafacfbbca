-- linger in Neovim (0.7 or newer): a session in a split, over the daemon's socket; no dependencies.
--
-- `:Linger [SESSION]` attaches, `:LingerNew [MODEL]` starts one, `:'<,'>LingerPrompt WORDS` prompts with the selection,
-- `:LingerAnswer [NAME [REASON]]` answers, `:LingerCancel` cancels; in the buffer Enter jumps to a file or answers a question.
-- `require("linger").status()` is for a status line.
-- Text from models and tools is text: indented by two blanks, its control characters visible, never evaluated.
local M = { config = { program = "linger" } }
local uv, api, fn = vim.loop, vim.api, vim.fn
-- The variables that a session's tools get: none of them holds a secret.
local ENV = [[PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TMPDIR SSH_AUTH_SOCK XDG_RUNTIME_DIR EDITOR CARGO_HOME RUSTUP_HOME
  GOPATH JAVA_HOME VIRTUAL_ENV NVM_DIR DISPLAY WAYLAND_DISPLAY DBUS_SESSION_BUS_ADDRESS]]
-- A lost daemon is dialled for 15 s, and started after half a second: its keeper needs a moment.
local PATIENCE, KEEPER, PAUSE = 15000, 500, 50
local ENDING = -31017

-- The connection, requests without an answer, since when the daemon is lost, and the session that is shown.
local channel, last, open, down_since, starting = nil, 0, {}, nil, false
local shown

-- Visible forms of control, bidirectional and zero-width characters.
local function clean(text)
  text = text:gsub("[%z\1-\8\11-\31]", function(c) return "^" .. string.char(c:byte() + 64) end)
  local hidden = [=[[\x7f\u80-\u9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]]=]
  return fn.substitute(text, hidden, [[\=printf("<U+%04X>", char2nr(submatch(0)))]], "g")
end

local function say(text) vim.schedule(function() vim.notify("linger: " .. clean(text), vim.log.levels.WARN) end) end

-- What to do with an answer; a refusal is said.
local function done_or_say(done)
  return function(result, failed)
    if failed then say(failed.message) elseif done then done(result) end
  end
end

local function key() return (uv.random(16):gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

-- Adds to the end of the session's buffer: `text` to the last line, each further line with the gutter.
local function append(s, text, gutter)
  if not api.nvim_buf_is_valid(s.buf) then return end
  local lines = vim.split(clean(text), "\n", { plain = true })
  local count = api.nvim_buf_line_count(s.buf)
  lines[1] = api.nvim_buf_get_lines(s.buf, count - 1, count, false)[1] .. lines[1]
  for i = 2, #lines do lines[i] = gutter .. lines[i] end
  vim.bo[s.buf].modifiable = true
  api.nvim_buf_set_lines(s.buf, count - 1, count, false, lines)
  vim.bo[s.buf].modifiable = false
  for _, win in ipairs(fn.win_findbuf(s.buf)) do
    -- A window that shows the end goes on showing it.
    if api.nvim_win_get_cursor(win)[1] >= count then api.nvim_win_set_cursor(win, { count - 1 + #lines, 0 }) end
  end
end

-- A line of linger's own, in the first column; `what` of others in one line.
local function own(s, mark, what)
  s.stream = nil
  local first = api.nvim_buf_line_count(s.buf) == 1 and api.nvim_buf_get_lines(s.buf, 0, 1, false)[1] == ""
  append(s, (first and "" or "\n") .. mark .. (what or ""):gsub("\n", " "), "")
end

local function streamed(s, stream, text)
  if s.stream ~= stream then
    append(s, "\n  ", "")
    s.stream = stream
  end
  append(s, text, "  ")
end

local function write(id)
  local line = vim.json.encode({ jsonrpc = "2.0", id = id, method = open[id].method, params = open[id].params }) .. "\n"
  -- Over a connection that has just ended it fails, and goes with the next one.
  pcall(fn.chansend, channel, line)
end

-- A request; one without an answer is sent again over the next connection, with its key.
local function ask(method, params, done)
  last = last + 1
  open[last] = { method = method, params = params, done = done or function() end }
  if channel then write(last) else M.connect() end
end

local function attach(s) ask("session/attach", { session = s.id, after = s.cursor, person = true }, done_or_say()) end

local function blob(name, done, got, offset)
  if not name then return done(got or "") end
  ask("blob/get", { blob = name, offset = offset or 0 }, function(piece, failed)
    if failed then return done(got or "") end
    got = (got or "") .. fn.system({ "base64", "-d" }, piece.data)
    if piece.next then blob(name, done, got, piece.next) else done(got) end
  end)
end

-- Shows what a question would change, as differences; then it can be answered.
local function question(s, q, changes)
  local change = table.remove(changes, 1)
  if not change then
    own(s, "? answer: ", "Enter here, or :LingerAnswer " .. table.concat(q.options, "|"))
    s.questions[#s.questions + 1] = q
    return vim.cmd("redrawstatus!")
  end
  blob(change.before, function(before)
    blob(change.after, function(after)
      own(s, "? " .. change.kind .. " ", change.path)
      streamed(s, "diff", (vim.diff(before, after, { ctxlen = 3 }):gsub("\n$", "")))
      question(s, q, changes)
    end)
  end)
end

-- What runs; with the tool, unless that says it.
local function action(e) return vim.startswith(e.action, e.tool) and e.action or e.tool .. ": " .. e.action end

local on = {}
function on.prompt_accepted(s, e)
  own(s, "> ")
  for _, block in ipairs(e.content) do append(s, block.text or ("[" .. block.type .. "]"), "  ") end
end
function on.text_delta(s, e) streamed(s, e.message .. e.block, e.text) end
function on.tool_output_delta(s, e) streamed(s, e.call_id, e.text) end
function on.message(s, e) if e.interrupted then own(s, "- interrupted") end end
function on.tool_started(s, e) own(s, "* ", action(e)) end
function on.tool_finished(s, e)
  if e.is_error then
    own(s, "* failed")
    for _, block in ipairs(e.content) do streamed(s, "failure", block.text or "") end
  end
  for _, where in ipairs(e.changes and e.locations or {}) do own(s, "@ ", where.path .. ":" .. (where.line or 1)) end
end
function on.notice(s, e) own(s, "! ", e.text) end
function on.turn_started(s) s.state = "running" end
function on.turn_finished(s, e) s.state = own(s, "- ", e.stop_reason .. (e.detail and ": " .. e.detail or "")) or "idle" end
function on.permission_requested(s, e, past)
  own(s, "? ", action(e))
  if not past then question(s, { id = e.permission, digest = e.digest, options = e.options, text = action(e) }, e.changes or {}) end
end
function on.question_asked(s, e, past)
  own(s, "? ", e.asked.text)
  local options = e.asked.schema and { "accept", "decline" } or vim.tbl_map(function(o) return o.name end, e.asked.options)
  if not past then question(s, { id = e.question, digest = e.asked.digest, options = options, text = e.asked.text, form = e.asked.schema }, {}) end
end
local function resolved(s, id, answer, by)
  s.questions = vim.tbl_filter(function(q) return q.id ~= id end, s.questions)
  own(s, "? " .. (answer or "withdrawn") .. ", by ", by)
end
function on.permission_resolved(s, e) resolved(s, e.permission, e.decision, e.by) end
function on.question_resolved(s, e) resolved(s, e.question, e.answer, e.by) end

local function receive(message)
  local request = message.id and open[message.id]
  if request then
    -- A daemon that is ending refuses; the next one is asked again.
    if message.error and message.error.code == ENDING then return end
    open[message.id] = nil
    return request.done(message.result, message.error)
  end
  local it = message.params
  if message.method ~= "session/event" or not shown or it.session ~= shown.id then return end
  local e = it.event
  if e.seq and e.seq <= shown.seq then return end
  shown.seq, shown.cursor = e.seq or shown.seq, it.cursor
  if on[e.kind] then on[e.kind](shown, e, it.answered) end
  vim.cmd("redrawstatus!")
end

local function lost()
  channel = nil
  down_since = down_since or uv.now()
  if uv.now() - down_since > PATIENCE then
    down_since, open = nil, {}
    return say("cannot reach the daemon; `linger doctor` says what is wrong")
  end
  if uv.now() - down_since >= KEEPER and not starting then
    starting = fn.jobstart({ M.config.program, "daemon", "start" }, { on_exit = function() starting = false end }) > 0
  end
  vim.defer_fn(M.connect, PAUSE)
end

function M.socket()
  local state = vim.env.XDG_STATE_HOME or ""
  if state:sub(1, 1) ~= "/" then state = vim.env.HOME .. "/.local/state" end
  return vim.env.LINGER_SOCKET or state .. "/linger/lingerd.sock"
end

function M.connect()
  if channel then return end
  local socket = M.socket()
  local dir = uv.fs_lstat(fn.fnamemodify(socket, ":h"))
  if dir and (dir.uid ~= uv.getuid() or dir.mode % 64 ~= 0) then
    return say(fn.fnamemodify(socket, ":h") .. " is not a directory of yours that is closed to others")
  end
  local rest, mine = "", nil
  local function read(_, data)
    if #data == 1 and data[1] == "" then return channel == mine and lost() end
    data[1] = rest .. data[1]
    rest = table.remove(data)
    for _, line in ipairs(data) do
      if channel == mine then receive(vim.json.decode(line, { luanil = { object = true, array = true } })) end
    end
  end
  local connected, number = pcall(fn.sockconnect, "pipe", socket, { on_data = read })
  if not connected then return lost() end
  channel, mine = number, number
  local waiting = open
  open = {}
  ask("daemon/hello", { client = "nvim@" .. fn.getpid(), protocol = { 1, 1 } }, done_or_say(function() down_since = nil end))
  if shown then attach(shown) end
  for id, request in pairs(waiting) do
    if request.method ~= "session/attach" and request.method ~= "daemon/hello" then
      open[id] = request
      write(id)
    end
  end
end

-- Shows a session in a split; its buffer is made anew, from the beginning of the session.
function M.show(id)
  if shown then ask("session/detach", { session = shown.id }) end
  local name = "linger://" .. id
  local old = fn.bufnr("^" .. name .. "$")
  if old > 0 then api.nvim_buf_delete(old, { force = true }) end
  vim.cmd("botright new")
  local buf = api.nvim_get_current_buf()
  api.nvim_buf_set_name(buf, name)
  vim.cmd("setlocal buftype=nofile noswapfile nomodeline nomodifiable undolevels=-1 wrap linebreak")
  vim.wo.statusline = "%f %{v:lua.require'linger'.status()}"
  vim.keymap.set("n", "<CR>", M.enter, { buffer = buf, desc = "jump to the file of this line, or answer the question" })
  shown = { id = id, buf = buf, seq = 0, questions = {}, state = "idle" }
  attach(shown)
end

function M.open(name)
  local params = name ~= "" and { matching = name, limit = 1 } or { cwd = fn.getcwd(), limit = 1 }
  ask("session/list", params, done_or_say(function(rows)
    if rows[1] then return M.show(rows[1].session) end
    if name ~= "" then say("there is no session '" .. name .. "'") else M.new("") end
  end))
end

function M.new(model)
  local env = {}
  for name in ENV:gmatch("%S+") do env[name] = os.getenv(name) end
  local params = { cwd = fn.getcwd(), env = env, model = model ~= "" and model or M.config.model, mode = M.config.mode, key = key() }
  ask("session/create", params, done_or_say(function(made) M.show(made.session) end))
end

-- Prompts the session that is shown, with lines of this buffer as they are, also unsaved ones.
function M.prompt(text, range)
  if not shown then return say("no session is shown: :Linger or :LingerNew first") end
  if range then
    local code = table.concat(api.nvim_buf_get_lines(0, range[1] - 1, range[2], false), "\n")
    local fence = "```"
    while code:find(fence, 1, true) do fence = fence .. "`" end
    text = ("%s\n\n%s:%d-%d\n%s\n%s\n%s"):format(text, fn.expand("%:p"), range[1], range[2], fence, code, fence)
  end
  ask("session/prompt", { session = shown.id, content = text, key = key() }, done_or_say())
end

-- Answers the oldest question; asks which answer where none is named.
function M.answer(name, reason)
  local q = shown and shown.questions[1]
  if not q then return say("no question waits in the session that is shown") end
  if not name then
    return vim.ui.select(q.options, { prompt = clean(q.text) }, function(choice) if choice then M.answer(choice, "") end end)
  end
  local params = { question = q.id, answer = name, digest = q.digest, key = key() }
  if q.form and name == "accept" then
    local read, value = pcall(vim.json.decode, reason)
    if not read then return say('give the fields of the form as JSON: :LingerAnswer accept {"answer": …}') end
    params.value = value
  elseif reason ~= "" then
    params.reason = reason
  end
  ask("question/answer", params, done_or_say())
end

function M.cancel()
  if shown then ask("session/cancel", { session = shown.id, key = key() }, done_or_say()) end
end

function M.enter()
  local line = api.nvim_get_current_line()
  local path, number = line:match("^@ (.*):(%d+)$")
  if not path then return line:match("^%? answer:") and M.answer() end
  vim.cmd(fn.winnr("#") > 0 and fn.winnr("#") ~= fn.winnr() and "wincmd p" or "leftabove split")
  vim.cmd("edit " .. fn.fnameescape(path))
  -- It was changed under a buffer that was there already.
  if not vim.bo.modified then vim.cmd("edit") end
  api.nvim_win_set_cursor(0, { math.min(tonumber(number), api.nvim_buf_line_count(0)), 0 })
end

function M.status()
  if not shown then return "" end
  local state = channel and shown.state or "reconnecting"
  return #shown.questions > 0 and ("%s, %d waiting"):format(state, #shown.questions) or state
end

function M.setup(config) M.config = vim.tbl_extend("force", M.config, config or {}) end

return M
