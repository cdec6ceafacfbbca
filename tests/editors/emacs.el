;;; emacs.el --- drives Emacs with `contrib/emacs', for `it/editors.rs'  -*- lexical-binding: t; -*-

;; The commands that a user has, and what the buffer shows.

(require 'linger)
(setq linger-program (getenv "LINGER_PROGRAM"))

(defun lines ()
  (if (buffer-live-p linger--shown) (with-current-buffer linger--shown (split-string (buffer-string) "\n")) nil))
(defun has (line) (member line (lines)))
(defun wait (what condition)
  (let ((end (+ (float-time) (/ (string-to-number (getenv "LINGER_TIMEOUT")) 1000.0))))
    (while (not (funcall condition))
      (when (> (float-time) end) (error "%s: not in time\n%s" what (string-join (lines) "\n")))
      (accept-process-output nil 0.005))))
(defun wait-for (line) (wait line (lambda () (has line))))
(defun check (well what) (unless well (error "%s\n%s" what (string-join (lines) "\n"))))
(defun lasting ()
  "The lines that a replay has too: an old question is not asked again."
  (seq-remove (lambda (line) (string-match-p "\\`\\(\\? \\|  [-+@]\\|   \\(one\\|three\\)\\'\\)" line)) (lines)))

(defun main ()
  (find-file "note.txt")
  (linger-new)
  (wait "a buffer" (lambda () (buffer-live-p linger--shown)))
  (goto-char (point-min))
  (forward-line 1)
  (linger-prompt "change this" (point) (line-beginning-position 2))
  (wait-for "  begun")
  (check (equal (linger-status) "running") (linger-status))
  (let ((status (json-parse-string (shell-command-to-string (concat linger-program " daemon status --json")) :object-type 'plist)))
    (signal-process (plist-get status :pid) 'SIGKILL))
  ;; What the model says is text.
  (wait-for "  I look.^[]0;x^G<U+202E>")
  (wait-for "  # vim: set shiftwidth=7:")
  (wait "a question" (lambda () (equal (linger-status) "running, 1 waiting")))
  (check (and (has "  -old") (has "  +new")) "no difference")
  (linger-answer "allow_once")
  (wait-for "- end_turn")
  (check (and (has "  Changed.") (has "- interrupted")) "lost lines")
  ;; RET jumps to the line that was changed.
  (pop-to-buffer linger--shown)
  (goto-char (point-min))
  (check (re-search-forward "^@ .*note\\.txt:2$" nil t) "no place to jump to")
  (execute-kbd-macro (kbd "RET"))
  (check (and (equal (buffer-name) "note.txt") (looking-at-p "new$")) (buffer-name))
  (linger-prompt "stop soon")
  (wait-for "  cancel me")
  (linger-cancel)
  (wait-for "- cancelled")
  ;; Another look shows the same, nothing twice and nothing less.
  (let ((before (lasting)))
    (linger (buffer-local-value 'linger--session linger--shown))
    (wait "another look" (lambda () (not (equal (lasting) before))))
    (wait "the same again" (lambda () (equal (lasting) before)))))

(condition-case problem
    (progn (main) (write-region "all is well" nil (getenv "LINGER_OUTPUT")))
  (error (write-region (error-message-string problem) nil (getenv "LINGER_OUTPUT")) (kill-emacs 1)))
