;;; linger.el --- sessions of coding agents that outlive their terminal  -*- lexical-binding: t; -*-

;; Package-Requires: ((emacs "28.1"))

;;; Commentary:

;; `linger' attaches to a session in another window, `linger-new' starts one, `linger-prompt' prompts, also with the region,
;; `linger-answer' answers the oldest question, `linger-cancel' cancels; RET jumps to a file or answers a question, and the
;; mode line has the state.  `linger-program', `linger-model' and `linger-permission-mode' configure it.
;; Text from models and tools is text: indented by two blanks, its control characters visible, never evaluated.

;;; Code:

(require 'jsonrpc)
(require 'map)
(require 'seq)
(require 'subr-x)

(defgroup linger nil "Coding agents that outlive your terminal." :group 'tools)
(defcustom linger-program "linger" "The program that starts the daemon." :type 'string)
(defcustom linger-model nil "The model of new sessions." :type '(choice (const nil) string))
(defcustom linger-permission-mode nil "The mode of new sessions." :type '(choice (const nil) string))

(defconst linger--env
  (split-string "PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TMPDIR SSH_AUTH_SOCK XDG_RUNTIME_DIR EDITOR CARGO_HOME
RUSTUP_HOME GOPATH JAVA_HOME VIRTUAL_ENV NVM_DIR DISPLAY WAYLAND_DISPLAY DBUS_SESSION_BUS_ADDRESS")
  "The variables that a session's tools get: none of them holds a secret.")
(defconst linger--ending -31017 "The error of a daemon that is ending.")

(defvar linger--connection nil)
(defvar linger--open nil "Requests without an answer, the newest first: method, params, function.")
(defvar linger--starting nil "The process that starts the daemon, or waits for it.")
(defvar linger--shown nil "The buffer of the session that is shown.")
(defvar-local linger--session nil)
(defvar-local linger--cursor nil "Where to read on from.")
(defvar-local linger--seq 0 "The last durable event.")
(defvar-local linger--stream nil "The stream whose text is at the end.")
(defvar-local linger--state "idle")
(defvar-local linger--questions nil "Questions that wait, the oldest first.")

(defun linger--clean (text)
  "TEXT with visible forms of control, bidirectional and zero-width characters."
  (replace-regexp-in-string
   "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]"
   (lambda (it) (if (< (aref it 0) 32) (format "^%c" (+ (aref it 0) 64)) (format "<U+%04X>" (aref it 0)))) text t t))

(defun linger--append (text gutter)
  "Add TEXT to the end of the session's buffer, each further line with GUTTER."
  (let ((inhibit-read-only t) (moving (eobp)))
    (save-excursion
      (goto-char (point-max))
      (insert (string-replace "\n" (concat "\n" gutter) (linger--clean text))))
    (when moving (goto-char (point-max)))))

(defun linger--own (mark &optional what)
  "A line of linger's own, in the first column: MARK, and WHAT of others in one line."
  (setq linger--stream nil)
  (linger--append (concat (if (= (point-max) 1) "" "\n") mark (string-replace "\n" " " (or what ""))) ""))

(defun linger--streamed (stream text)
  "Show TEXT of STREAM."
  (unless (equal stream linger--stream) (linger--append "\n  " "") (setq linger--stream stream))
  (linger--append text "  "))

(defun linger--here () (directory-file-name (expand-file-name default-directory)))
(defun linger--key () (md5 (format "%s %s %s" (random) (emacs-pid) (float-time))))

(defun linger--ask (method params &optional done)
  "Call METHOD with PARAMS; one without an answer is asked again over the next connection, with its key.  DONE gets the result."
  (let ((request (list method params done)))
    (push request linger--open)
    (if linger--connection (linger--send request) (linger--connect))))

(defun linger--send (request)
  (pcase-let ((`(,method ,params ,done) request))
    (jsonrpc-async-request
     linger--connection (intern method) params :timeout nil
     :success-fn (lambda (result) (setq linger--open (delq request linger--open)) (when done (funcall done result)))
     ;; A connection that ended, or a daemon that is ending: the next one is asked again.
     :error-fn (lambda (failed)
                 (unless (memq (plist-get failed :code) (list -1 linger--ending))
                   (setq linger--open (delq request linger--open))
                   (message "linger: %s" (linger--clean (plist-get failed :message))))))))

(defun linger--attach ()
  "Attach to the session of this buffer, after what it shows."
  (linger--ask "session/attach" `(:session ,linger--session :person t ,@(and linger--cursor (list :after linger--cursor)))))

(defun linger--socket ()
  (let ((state (or (getenv "XDG_STATE_HOME") "")))
    (or (getenv "LINGER_SOCKET") (expand-file-name "linger/lingerd.sock" (if (string-prefix-p "/" state) state "~/.local/state")))))

(defun linger--connect ()
  "Connect, attach again, and send again what has no answer."
  (unless linger--connection
    (let* ((socket (linger--socket)) (directory (directory-file-name (file-name-directory socket)))
           (found (file-attributes directory 'integer)))
      (unless (or (not found) (and (eq (file-attribute-type found) t) (= (file-attribute-user-id found) (user-uid))
                                   (zerop (logand (file-modes directory) #o077))))
        (user-error "%s is not a directory of yours that is closed to others" directory))
      (condition-case nil
          (let ((process (make-network-process :name "linger" :family 'local :service socket :noquery t))
                (waiting (reverse linger--open)))
            (setq linger--open nil
                  linger--connection
                  (apply #'make-instance 'jsonrpc-process-connection :name "linger" :process process
                         :notification-dispatcher #'linger--event :on-shutdown #'linger--lost
                         (if (< emacs-major-version 30) '(:events-buffer-scrollback-size 0) '(:events-buffer-config (:size 0)))))
            (linger--ask "daemon/hello" (list :client (format "emacs@%d" (emacs-pid)) :protocol [1 1]))
            (when (buffer-live-p linger--shown) (with-current-buffer linger--shown (linger--attach)))
            (dolist (request waiting)
              (unless (member (car request) '("daemon/hello" "session/attach"))
                (push request linger--open)
                (linger--send request))))
        (file-error (linger--lost nil))))))

(defun linger--lost (_)
  "Connect again, once the daemon that is lost runs: its keeper starts another one, or else `linger' does."
  (setq linger--connection nil)
  (unless (process-live-p linger--starting)
    (setq linger--starting (start-process "linger start" nil linger-program "daemon" "start"))
    (set-process-sentinel linger--starting #'linger--started)))

(defun linger--started (process _)
  "Connect, if PROCESS has found a daemon."
  (cond ((process-live-p process))
        ((and (zerop (process-exit-status process)) (file-exists-p (linger--socket))) (linger--connect))
        (t (setq linger--open nil) (message "linger: cannot reach the daemon; `linger doctor' says what is wrong"))))

(defun linger--event (_ _method params)
  "Show the event of PARAMS, if it is new."
  (pcase-let* (((map :session :cursor :event :answered) params) (seq (plist-get event :seq)))
    (when (and (buffer-live-p linger--shown) (equal session (linger--of-shown 'linger--session)))
      (with-current-buffer linger--shown
        (when (or (not seq) (> seq linger--seq))
          (setq linger--seq (or seq linger--seq) linger--cursor cursor)
          (linger--show-event event (eq answered t))
          (force-mode-line-update))))))

(defun linger--action (event)
  "What runs in EVENT; with the tool, unless that says it."
  (pcase-let (((map :action :tool) event))
    (if (string-prefix-p tool action) action (concat tool ": " action))))

(defun linger--show-event (e past)
  "Show the event E; of a question that is PAST only that it was asked."
  (pcase-let (((map :kind :content :text :message :block :call_id :stop_reason :detail :changes :by :asked) e)
              (id (or (plist-get e :permission) (plist-get e :question))))
    (pcase kind
      ("prompt_accepted"
       (linger--own "> ")
       (seq-doseq (it content) (linger--append (or (plist-get it :text) "[image]") "  ")))
      ("text_delta" (linger--streamed (list message block) text))
      ("tool_output_delta" (linger--streamed call_id text))
      ("message" (when (eq (plist-get e :interrupted) t) (linger--own "- interrupted")))
      ("tool_started" (linger--own "* " (linger--action e)))
      ("tool_finished"
       (when (eq (plist-get e :is_error) t)
         (linger--own "* failed")
         (seq-doseq (it content) (linger--streamed 'failure (or (plist-get it :text) ""))))
       (seq-doseq (where (and changes (plist-get e :locations)))
         (linger--own "@ " (format "%s:%d" (plist-get where :path) (or (plist-get where :line) 1)))))
      ("notice" (linger--own "! " text))
      ("turn_started" (setq linger--state "running"))
      ("turn_finished" (setq linger--state "idle") (linger--own "- " (concat stop_reason (and detail ": ") detail)))
      ("permission_requested" (linger--asked (linger--action e) id e (append (plist-get e :options) nil) past))
      ("question_asked"
       (let ((names (seq-map (lambda (it) (plist-get it :name)) (plist-get asked :options))))
         (linger--asked (plist-get asked :text) id asked (if (plist-get asked :schema) '("accept" "decline") names) past)))
      ((or "permission_resolved" "question_resolved")
       (setq linger--questions (seq-remove (lambda (q) (equal (plist-get q :id) id)) linger--questions))
       (linger--own "? " (format "%s, by %s" (or (plist-get e :decision) (plist-get e :answer) "withdrawn") by))))))

(defun linger--asked (text id it options past)
  "Show TEXT, which asks the question ID of IT; unless it is PAST, it can be answered with OPTIONS."
  (linger--own "? " text)
  (unless past
    (linger--question (list :id id :digest (plist-get it :digest) :options options :form (and (plist-get it :schema) t))
                      (append (plist-get it :changes) nil))))

(defun linger--question (q changes)
  "Show CHANGES as differences, one after the other; then Q can be answered."
  (if (null changes)
      (progn (linger--own "? answer: " (concat "RET here, or M-x linger-answer: " (string-join (plist-get q :options) ", ")))
             (setq linger--questions (append linger--questions (list q))))
    (pcase-let (((map :kind :path :before :after) (car changes)) (buffer (current-buffer)))
      (linger--blob before (lambda (before)
        (linger--blob after (lambda (after)
          (with-current-buffer buffer
            (linger--own (format "? %s " kind) path)
            (linger--streamed 'diff (linger--diff before after))
            (linger--question q (cdr changes))))))))))

(defun linger--blob (name done &optional got offset)
  "Give DONE the content of the blob NAME: GOT and what follows from OFFSET."
  (if (not name)
      (funcall done (or got ""))
    (linger--ask "blob/get" (list :blob name :offset (or offset 0))
                 (lambda (piece)
                   (let ((got (concat got (base64-decode-string (plist-get piece :data)))) (next (plist-get piece :next)))
                     (if next (linger--blob name done got next) (funcall done got)))))))

(defun linger--diff (before after)
  "The difference of two texts in bytes."
  (let* ((coding-system-for-write 'no-conversion)
         (files (mapcar (lambda (text) (make-temp-file "linger" nil nil text)) (list before after))))
    (unwind-protect
        (string-join (nthcdr 2 (apply #'process-lines-ignore-status "diff" "-u" files)) "\n")
      (mapc #'delete-file files))))

(define-derived-mode linger-mode special-mode "linger"
  "A session of linger."
  (setq-local mode-line-process '(" " (:eval (linger-status))) buffer-undo-list t window-point-insertion-type t)
  (visual-line-mode))
(define-key linger-mode-map (kbd "RET") #'linger-enter)

(defun linger--show (id)
  "Show the session ID from its beginning."
  (when (buffer-live-p linger--shown) (linger--ask "session/detach" (list :session (linger--of-shown 'linger--session))))
  (with-current-buffer (get-buffer-create (format "*linger %s*" id))
    (let ((inhibit-read-only t)) (erase-buffer))
    (linger-mode)
    (setq linger--session id linger--shown (current-buffer))
    (linger--attach)
    (display-buffer linger--shown)))

;;;###autoload
(defun linger (name)
  "Attach to the session NAME, or with an empty one to the latest of this directory."
  (interactive "sSession (empty for the latest here): ")
  (linger--ask "session/list" (if (string-empty-p name) (list :cwd (linger--here) :limit 1) (list :matching name :limit 1))
               (lambda (rows)
                 (cond ((> (length rows) 0) (linger--show (plist-get (aref rows 0) :session)))
                       ((string-empty-p name) (linger-new))
                       (t (message "linger: there is no session '%s'" name))))))

;;;###autoload
(defun linger-new ()
  "Start a session in this directory."
  (interactive)
  (let ((env (seq-mapcat (lambda (name) (and (getenv name) (list (intern (concat ":" name)) (getenv name)))) linger--env)))
    (linger--ask "session/create"
                 `(:cwd ,(linger--here) :env ,env :key ,(linger--key)
                   ,@(and linger-model (list :model linger-model)) ,@(and linger-permission-mode (list :mode linger-permission-mode)))
                 (lambda (made) (linger--show (plist-get made :session))))))

(defun linger--of-shown (variable)
  "The value of VARIABLE in the session that is shown."
  (unless (buffer-live-p linger--shown) (user-error "No session is shown: M-x linger or linger-new first"))
  (buffer-local-value variable linger--shown))

;;;###autoload
(defun linger-prompt (text &optional begin end)
  "Prompt the session that is shown with TEXT, and with the lines from BEGIN to END of this buffer, as they are."
  (interactive (append (list (read-string "Prompt: ")) (and (use-region-p) (list (region-beginning) (region-end)))))
  (when begin
    (let ((code (string-trim-right (buffer-substring-no-properties begin end) "\n")) (fence "```"))
      (while (string-search fence code) (setq fence (concat fence "`")))
      (setq text (format "%s\n\n%s:%d-%d\n%s\n%s\n%s" text (or (buffer-file-name) (buffer-name)) (line-number-at-pos begin)
                         (line-number-at-pos (max begin (1- end))) fence code fence))))
  (linger--ask "session/prompt" (list :session (linger--of-shown 'linger--session) :content text :key (linger--key))))

(defun linger-answer (&optional name reason)
  "Answer the oldest question with NAME, with a REASON; for a form the fields as JSON."
  (interactive)
  (let* ((q (or (car (linger--of-shown 'linger--questions)) (user-error "No question waits")))
         (name (or name (completing-read "Answer: " (plist-get q :options) nil t)))
         (fields (and (plist-get q :form) (equal name "accept") (or reason (read-string "Fields as JSON: ")))))
    (linger--ask "question/answer"
                 `(:question ,(plist-get q :id) :answer ,name :digest ,(plist-get q :digest) :key ,(linger--key)
                   ,@(cond (fields (list :value (json-parse-string fields :object-type 'plist)))
                           (reason (list :reason reason)))))))

(defun linger-cancel ()
  "Cancel the running turn."
  (interactive)
  (linger--ask "session/cancel" (list :session (linger--of-shown 'linger--session) :key (linger--key))))

(defun linger-enter ()
  "Jump to the file of this line, or answer the question."
  (interactive)
  (let ((line (buffer-substring-no-properties (line-beginning-position) (line-end-position))))
    (cond ((string-match "\\`@ \\(.*\\):\\([0-9]+\\)\\'" line)
           (let ((number (string-to-number (match-string 2 line))))
             (pop-to-buffer (find-file-noselect (match-string 1 line) t))
             ;; It was changed under a buffer that was there already.
             (unless (or (buffer-modified-p) (verify-visited-file-modtime)) (revert-buffer t t t))
             (goto-char (point-min)) (forward-line (1- number))))
          ((string-prefix-p "? answer:" line) (linger-answer)))))

(defun linger-status ()
  "What the session that is shown does, for a mode line."
  (if (not (buffer-live-p linger--shown)) ""
    (let ((waiting (length (linger--of-shown 'linger--questions))))
      (concat (if linger--connection (linger--of-shown 'linger--state) "reconnecting")
              (unless (zerop waiting) (format ", %d waiting" waiting))))))

(provide 'linger)
;;; linger.el ends here
