-- A database of schema 1, as sqlite3's .dump writes it: a turn with a tool, a permission that waits with a prompt queued
-- behind it, one that was answered, an image, a session that was removed and is not deleted yet, what answers have cost, and
-- a message that was being streamed when the daemon was killed.
PRAGMA foreign_keys=OFF;
PRAGMA application_id=1818848871;
BEGIN TRANSACTION;
CREATE TABLE blob (
    session TEXT    NOT NULL,
    hash    TEXT    NOT NULL,
    size    INTEGER NOT NULL,
    PRIMARY KEY (session, hash)
) STRICT, WITHOUT ROWID;
INSERT INTO "blob" VALUES('nan4p4avy9','sha256:6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0',70);
CREATE TABLE event (
    n       INTEGER NOT NULL PRIMARY KEY,
    session TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    stream  TEXT,
    data    TEXT    NOT NULL,
    sum     INTEGER NOT NULL
) STRICT;
INSERT INTO "event" VALUES(1,'3c725prqhm',1,1795255452864,'session_created',NULL,'{"kind":"session_created","cwd":"/home/u/p","model":"demo/demo","mode":"auto","env":{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"},"seq":1,"at":1795255452864}',3244814772);
INSERT INTO "event" VALUES(2,'3c725prqhm',2,1795255452867,'prompt_accepted',NULL,'{"kind":"prompt_accepted","prompt":"p1","content":[{"type":"text","text":"run: echo hello"}],"when":"queue","by":"linger@16650","seq":2,"at":1795255452867}',988603532);
INSERT INTO "event" VALUES(3,'3c725prqhm',3,1795255452867,'turn_started',NULL,'{"kind":"turn_started","prompt":"p1","seq":3,"at":1795255452867,"turn":"t1"}',3068414553);
INSERT INTO "event" VALUES(4,'3c725prqhm',4,1795255452867,'message',NULL,'{"kind":"message","message":"m1","role":"user","content":[{"type":"text","text":"run: echo hello"}],"prompt":"p1","seq":4,"at":1795255452867,"turn":"t1"}',1666996125);
INSERT INTO "event" VALUES(5,'3c725prqhm',5,1795255453232,'message','m2','{"kind":"message","message":"m2","role":"assistant","content":[{"type":"text","text":"I am linger''s demo, a scripted model and no AI: I follow a fixed script, but my tool calls are real.\n\n"},{"type":"tool_use","call_id":"c1","name":"bash","input":{"command":"echo hello"}}],"model":"demo/demo","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"seq":5,"at":1795255453232,"turn":"t1"}',2142775866);
INSERT INTO "event" VALUES(6,'3c725prqhm',6,1795255453232,'tool_started',NULL,'{"kind":"tool_started","call_id":"c1","tool":"bash","action":"echo hello","seq":6,"at":1795255453232,"turn":"t1"}',1433013012);
INSERT INTO "event" VALUES(7,'3c725prqhm',7,1795255453237,'tool_finished','c1','{"kind":"tool_finished","call_id":"c1","is_error":false,"outcome":"ran","content":[{"type":"text","text":"hello\n"}],"output":[{"block":0,"offset":0}],"ms":2,"seq":7,"at":1795255453237,"turn":"t1"}',2695232774);
INSERT INTO "event" VALUES(8,'3c725prqhm',8,1795255453237,'message',NULL,'{"kind":"message","message":"m3","role":"user","content":[{"type":"tool_result","call_id":"c1","is_error":false,"content":[{"type":"text","text":"hello\n"}]}],"seq":8,"at":1795255453237,"turn":"t1"}',1475792878);
INSERT INTO "event" VALUES(9,'3c725prqhm',9,1795255453386,'message','m4','{"kind":"message","message":"m4","role":"assistant","content":[{"type":"text","text":"`echo hello` ran and gave:\n\nhello\n\n\n"}],"model":"demo/demo","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"seq":9,"at":1795255453386,"turn":"t1"}',945709050);
INSERT INTO "event" VALUES(10,'3c725prqhm',10,1795255453386,'turn_finished',NULL,'{"kind":"turn_finished","stop_reason":"end_turn","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"steps":2,"seq":10,"at":1795255453386,"turn":"t1"}',1190033278);
INSERT INTO "event" VALUES(11,'37grq28w2p',1,1795255453393,'session_created',NULL,'{"kind":"session_created","cwd":"/home/u/p","model":"demo/demo","mode":"ask","name":"asks","env":{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"},"seq":1,"at":1795255453393}',447292288);
INSERT INTO "event" VALUES(12,'37grq28w2p',2,1795255453399,'prompt_accepted',NULL,'{"kind":"prompt_accepted","prompt":"p1","content":[{"type":"text","text":"run: date"}],"when":"queue","by":"linger@16930","seq":2,"at":1795255453399}',2630742564);
INSERT INTO "event" VALUES(13,'37grq28w2p',3,1795255453399,'turn_started',NULL,'{"kind":"turn_started","prompt":"p1","seq":3,"at":1795255453399,"turn":"t1"}',2195991720);
INSERT INTO "event" VALUES(14,'37grq28w2p',4,1795255453399,'message',NULL,'{"kind":"message","message":"m1","role":"user","content":[{"type":"text","text":"run: date"}],"prompt":"p1","seq":4,"at":1795255453399,"turn":"t1"}',1842357209);
INSERT INTO "event" VALUES(15,'m55bcbgrhy',1,1795255453409,'session_created',NULL,'{"kind":"session_created","cwd":"/home/u/p","model":"demo/demo","mode":"auto","env":{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"},"seq":1,"at":1795255453409}',2182348424);
INSERT INTO "event" VALUES(16,'m55bcbgrhy',2,1795255453412,'prompt_accepted',NULL,'{"kind":"prompt_accepted","prompt":"p1","content":[{"type":"text","text":"slow: 200"}],"when":"queue","by":"linger@16934","seq":2,"at":1795255453412}',3287158326);
INSERT INTO "event" VALUES(17,'m55bcbgrhy',3,1795255453412,'turn_started',NULL,'{"kind":"turn_started","prompt":"p1","seq":3,"at":1795255453412,"turn":"t1"}',4190522634);
INSERT INTO "event" VALUES(18,'m55bcbgrhy',4,1795255453412,'message',NULL,'{"kind":"message","message":"m1","role":"user","content":[{"type":"text","text":"slow: 200"}],"prompt":"p1","seq":4,"at":1795255453412,"turn":"t1"}',880624571);
INSERT INTO "event" VALUES(19,'hmp369g2kx',1,1795255453418,'session_created',NULL,'{"kind":"session_created","cwd":"/home/u/p","model":"demo/demo","mode":"ask","name":"answered","env":{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"},"seq":1,"at":1795255453418}',2768498106);
INSERT INTO "event" VALUES(20,'hmp369g2kx',2,1795255453424,'prompt_accepted',NULL,'{"kind":"prompt_accepted","prompt":"p1","content":[{"type":"text","text":"run: true"}],"when":"queue","by":"linger@16939","seq":2,"at":1795255453424}',2052892088);
INSERT INTO "event" VALUES(21,'hmp369g2kx',3,1795255453425,'turn_started',NULL,'{"kind":"turn_started","prompt":"p1","seq":3,"at":1795255453425,"turn":"t1"}',2272818782);
INSERT INTO "event" VALUES(22,'hmp369g2kx',4,1795255453425,'message',NULL,'{"kind":"message","message":"m1","role":"user","content":[{"type":"text","text":"run: true"}],"prompt":"p1","seq":4,"at":1795255453425,"turn":"t1"}',3344125803);
INSERT INTO "event" VALUES(23,'37grq28w2p',5,1795255453764,'message','m2','{"kind":"message","message":"m2","role":"assistant","content":[{"type":"text","text":"I am linger''s demo, a scripted model and no AI: I follow a fixed script, but my tool calls are real.\n\n"},{"type":"tool_use","call_id":"c1","name":"bash","input":{"command":"date"}}],"model":"demo/demo","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"seq":5,"at":1795255453764,"turn":"t1"}',2288675726);
INSERT INTO "event" VALUES(24,'37grq28w2p',6,1795255453764,'permission_requested',NULL,'{"kind":"permission_requested","permission":"qqqdac03","call_id":"c1","tool":"bash","action":"date","input":{"command":"date"},"cwd":"/home/u/p","digest":"sha256:8ae7b3ef35a97cfb25aa9ff3eb01dc3ace2797bea0da3ef80d48e18899fe15b8","rule":null,"grant":"bash(date)","options":["allow_once","allow_session","allow_always","reject_once"],"seq":6,"at":1795255453764,"turn":"t1"}',1001734828);
INSERT INTO "event" VALUES(25,'hmp369g2kx',5,1795255453781,'message','m2','{"kind":"message","message":"m2","role":"assistant","content":[{"type":"text","text":"I am linger''s demo, a scripted model and no AI: I follow a fixed script, but my tool calls are real.\n\n"},{"type":"tool_use","call_id":"c1","name":"bash","input":{"command":"true"}}],"model":"demo/demo","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"seq":5,"at":1795255453781,"turn":"t1"}',3463472719);
INSERT INTO "event" VALUES(26,'hmp369g2kx',6,1795255453781,'permission_requested',NULL,'{"kind":"permission_requested","permission":"q6j6bbc9","call_id":"c1","tool":"bash","action":"true","input":{"command":"true"},"cwd":"/home/u/p","digest":"sha256:b2234ebacfafb1086833a248927a4ff69d5bd470b6fc06dc41976242181b895a","rule":null,"grant":"bash(true)","options":["allow_once","allow_session","allow_always","reject_once"],"seq":6,"at":1795255453781,"turn":"t1"}',3235985168);
INSERT INTO "event" VALUES(27,'hmp369g2kx',7,1795255454760,'permission_resolved',NULL,'{"kind":"permission_resolved","permission":"q6j6bbc9","decision":"reject_once","by":"linger@17327","reason":"not now","seq":7,"at":1795255454760,"turn":"t1"}',2261025159);
INSERT INTO "event" VALUES(28,'hmp369g2kx',8,1795255454761,'tool_finished','c1','{"kind":"tool_finished","call_id":"c1","is_error":true,"outcome":"denied","content":[{"type":"text","text":"not run: denied by linger@17327: not now"}],"ms":0,"seq":8,"at":1795255454761,"turn":"t1"}',1865588855);
INSERT INTO "event" VALUES(29,'hmp369g2kx',9,1795255454761,'message',NULL,'{"kind":"message","message":"m3","role":"user","content":[{"type":"tool_result","call_id":"c1","is_error":true,"content":[{"type":"text","text":"not run: denied by linger@17327: not now"}]}],"seq":9,"at":1795255454761,"turn":"t1"}',2268338002);
INSERT INTO "event" VALUES(30,'hmp369g2kx',10,1795255454958,'message','m4','{"kind":"message","message":"m4","role":"assistant","content":[{"type":"text","text":"`bash` did not succeed: not run: denied by linger@17327: not now\n\n"}],"model":"demo/demo","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"seq":10,"at":1795255454958,"turn":"t1"}',2031362415);
INSERT INTO "event" VALUES(31,'hmp369g2kx',11,1795255454958,'turn_finished',NULL,'{"kind":"turn_finished","stop_reason":"end_turn","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"steps":2,"seq":11,"at":1795255454958,"turn":"t1"}',7923591);
INSERT INTO "event" VALUES(32,'37grq28w2p',7,1795255455069,'prompt_accepted',NULL,'{"kind":"prompt_accepted","prompt":"p2","content":[{"type":"text","text":"say: and then this"}],"when":"queue","by":"linger@17478","seq":7,"at":1795255455069}',3551838243);
INSERT INTO "event" VALUES(33,'nan4p4avy9',1,1795260003323,'session_created',NULL,'{"kind":"session_created","cwd":"/home/u/p","model":"demo/demo","mode":"auto","name":"sees","env":{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"},"seq":1,"at":1795260003323}',1944730067);
INSERT INTO "event" VALUES(34,'nan4p4avy9',2,1795260003373,'prompt_accepted',NULL,'{"kind":"prompt_accepted","prompt":"p1","content":[{"type":"text","text":"say: a dot"},{"type":"image","media_type":"image/png","blob":"sha256:6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0","bytes":70}],"when":"queue","by":"pid 32657","seq":2,"at":1795260003373}',2433755318);
INSERT INTO "event" VALUES(35,'nan4p4avy9',3,1795260003377,'turn_started',NULL,'{"kind":"turn_started","prompt":"p1","seq":3,"at":1795260003377,"turn":"t1"}',2692352566);
INSERT INTO "event" VALUES(36,'nan4p4avy9',4,1795260003377,'message',NULL,'{"kind":"message","message":"m1","role":"user","content":[{"type":"text","text":"say: a dot"},{"type":"image","media_type":"image/png","blob":"sha256:6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0","bytes":70}],"prompt":"p1","seq":4,"at":1795260003377,"turn":"t1"}',580772157);
INSERT INTO "event" VALUES(37,'nan4p4avy9',5,1795260003449,'message','m2','{"kind":"message","message":"m2","role":"assistant","content":[{"type":"text","text":"a dot"}],"model":"demo/demo","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"seq":5,"at":1795260003449,"turn":"t1"}',2490892573);
INSERT INTO "event" VALUES(38,'nan4p4avy9',6,1795260003449,'turn_finished',NULL,'{"kind":"turn_finished","stop_reason":"end_turn","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"steps":1,"seq":6,"at":1795260003449,"turn":"t1"}',87742218);
INSERT INTO "event" VALUES(39,'jd6jypey8m',3,1795260003640,'turn_started',NULL,'{"kind":"turn_started","prompt":"p1","seq":3,"at":1795260003640,"turn":"t1"}',3425457275);
INSERT INTO "event" VALUES(40,'jd6jypey8m',4,1795260003640,'message',NULL,'{"kind":"message","message":"m1","role":"user","content":[{"type":"text","text":"say: gone"}],"prompt":"p1","seq":4,"at":1795260003640,"turn":"t1"}',2772841935);
INSERT INTO "event" VALUES(41,'jd6jypey8m',5,1795260003665,'message','m2','{"kind":"message","message":"m2","role":"assistant","content":[{"type":"text","text":"gone"}],"model":"demo/demo","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"seq":5,"at":1795260003665,"turn":"t1"}',387987325);
INSERT INTO "event" VALUES(42,'jd6jypey8m',6,1795260003665,'turn_finished',NULL,'{"kind":"turn_finished","stop_reason":"end_turn","usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"steps":1,"seq":6,"at":1795260003665,"turn":"t1"}',332502520);
INSERT INTO "event" VALUES(43,'75fajtjvpb',1,1795280499616,'session_created',NULL,'{"kind":"session_created","cwd":"/home/u/p","model":"demo/demo","mode":"ask","name":"paid","env":{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"},"seq":1,"at":1795280499616}',2572829586);
INSERT INTO "event" VALUES(44,'75fajtjvpb',2,1795280499628,'prompt_accepted',NULL,'{"kind":"prompt_accepted","prompt":"p1","content":[{"type":"text","text":"say: Good day"}],"when":"queue","by":"linger@19772","seq":2,"at":1795280499628}',809344879);
INSERT INTO "event" VALUES(45,'75fajtjvpb',3,1795280499629,'turn_started',NULL,'{"kind":"turn_started","prompt":"p1","seq":3,"at":1795280499629,"turn":"t1"}',108067239);
INSERT INTO "event" VALUES(46,'75fajtjvpb',4,1795280499629,'message',NULL,'{"kind":"message","message":"m1","role":"user","content":[{"type":"text","text":"say: Good day"}],"prompt":"p1","seq":4,"at":1795280499629,"turn":"t1"}',1717723283);
INSERT INTO "event" VALUES(47,'75fajtjvpb',5,1795280499668,'message','m2','{"kind":"message","message":"m2","role":"assistant","content":[{"type":"text","text":"Good day"}],"model":"demo/demo","usage":{"input_tokens":11,"output_tokens":9,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_micros":168},"seq":5,"at":1795280499668,"turn":"t1"}',2080870678);
INSERT INTO "event" VALUES(48,'75fajtjvpb',6,1795280499673,'turn_finished',NULL,'{"kind":"turn_finished","stop_reason":"end_turn","usage":{"input_tokens":11,"output_tokens":9,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_micros":168},"session_usage":{"input_tokens":11,"output_tokens":9,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_micros":168},"steps":1,"seq":6,"at":1795280499673,"turn":"t1"}',2714237181);
INSERT INTO "event" VALUES(49,'2g5m9485z9',1,1795280499734,'session_created',NULL,'{"kind":"session_created","cwd":"/home/u/p","model":"demo/demo","mode":"ask","name":"cut","env":{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"},"seq":1,"at":1795280499734}',4027505078);
INSERT INTO "event" VALUES(50,'2g5m9485z9',2,1795280499742,'prompt_accepted',NULL,'{"kind":"prompt_accepted","prompt":"p1","content":[{"type":"text","text":"slow: 400"}],"when":"queue","by":"linger@19815","seq":2,"at":1795280499742}',3488051694);
INSERT INTO "event" VALUES(51,'2g5m9485z9',3,1795280499742,'turn_started',NULL,'{"kind":"turn_started","prompt":"p1","seq":3,"at":1795280499742,"turn":"t1"}',3293698871);
INSERT INTO "event" VALUES(52,'2g5m9485z9',4,1795280499742,'message',NULL,'{"kind":"message","message":"m1","role":"user","content":[{"type":"text","text":"slow: 400"}],"prompt":"p1","seq":4,"at":1795280499742,"turn":"t1"}',4100917742);
INSERT INTO "event" VALUES(53,'2g5m9485z9',5,1795280501252,'message','m2','{"kind":"message","message":"m2","role":"assistant","content":[{"type":"text","text":"word 1 word 2 word 3 word 4 word 5 word 6 word 7 word 8 word 9 word 10 word 11 word 12 word 13 word 14 "}],"interrupted":true,"model":"demo/demo","usage":{"input_tokens":10,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_micros":30},"seq":5,"at":1795280501252,"turn":"t1"}',3238157771);
INSERT INTO "event" VALUES(54,'2g5m9485z9',6,1795280501252,'turn_finished',NULL,'{"kind":"turn_finished","stop_reason":"cancelled","usage":{"input_tokens":10,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_micros":30,"cost_at_least":true},"session_usage":{"input_tokens":10,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_micros":30,"cost_at_least":true},"steps":0,"seq":6,"at":1795280501252,"turn":"t1"}',1466312892);
CREATE TABLE numbered (
    n INTEGER NOT NULL
) STRICT;
INSERT INTO "numbered" VALUES(0);
CREATE TABLE outcome (
    n       INTEGER NOT NULL PRIMARY KEY,
    key     TEXT    NOT NULL UNIQUE,
    session TEXT    NOT NULL,
    params  TEXT    NOT NULL,
    result  TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;
INSERT INTO "outcome" VALUES(1,'session/create fb8c0a795d17de0cee40c7cbc472ec71','3c725prqhm','39ac63897518745edc2f8be2420450f1a599b61d78c389c1ff0be0a725840350','{"session":"3c725prqhm"}',1795255452865);
INSERT INTO "outcome" VALUES(2,'session/prompt 3c725prqhm 8955384ac6174d4ca3a90357b40de6c4','3c725prqhm','ebc2ac9f229029ad678d4aa8094501e38197a61c0cca4c2ecaf2b837fe0d5835','{"prompt":"p1","seq":2}',1795255452868);
INSERT INTO "outcome" VALUES(3,'session/create 9768315187009a2d122137c70e9373e9','37grq28w2p','efc052fe254dd2244c461a7dc8ea7dc5ec702c8850649b432eff3f67701fbce6','{"session":"37grq28w2p"}',1795255453393);
INSERT INTO "outcome" VALUES(4,'session/prompt 37grq28w2p ef66e9a807292980d79d57a2c19c66bd','37grq28w2p','75e71d673f35e309347ce0c4cc014b25ed4f069c9f1167e9fed02fd0c6c6161b','{"prompt":"p1","seq":2}',1795255453400);
INSERT INTO "outcome" VALUES(5,'session/create 6859cebfb2e7928da240e046d680bdbb','m55bcbgrhy','e0ed0ec8f8345f71bb1a513244b01582ee443294acbb695561fcb626550bbb4b','{"session":"m55bcbgrhy"}',1795255453409);
INSERT INTO "outcome" VALUES(6,'session/prompt m55bcbgrhy bc092b1b3aa6a67314f441d1dbdc2e57','m55bcbgrhy','447d03e61668526b4ec35ae1f97216d851fa92673f2a96512560502a140b83bd','{"prompt":"p1","seq":2}',1795255453412);
INSERT INTO "outcome" VALUES(7,'session/create bc065ec22443d00257705ef122451002','hmp369g2kx','02c1d6096f17f9352cd051920b8138350626341fbde06819e4d1ac68ea2028d0','{"session":"hmp369g2kx"}',1795255453418);
INSERT INTO "outcome" VALUES(8,'session/prompt hmp369g2kx 82fd3976c4bba7de6455a0a97e15db3e','hmp369g2kx','4bca7c80b399ecbb9b953a73add65d79611c1ff80cebefebaba8b061183079b3','{"prompt":"p1","seq":2}',1795255453424);
INSERT INTO "outcome" VALUES(9,'permission/answer q6j6bbc9 8424a61626a2a801cd617acc8cecf680','hmp369g2kx','45122c34824ab3761526df91c01b940b7a0dd6d20770f8c227b531279da22a55','null',1795255454761);
INSERT INTO "outcome" VALUES(10,'session/prompt 37grq28w2p 602974bb2b0d0bada345b681c78b3a79','37grq28w2p','c0011af6a2ea718535c8cab292306c863900329a9b6cac738828b014c01b0113','{"prompt":"p2","seq":7}',1795255455070);
INSERT INTO "outcome" VALUES(11,'session/remove k2m4p6q8r0 5d0a4be5e7e2a0b7f3c1d9e8f7a6b5c4','k2m4p6q8r0','44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a','null',1795255455100);
INSERT INTO "outcome" VALUES(12,'session/create c-1','nan4p4avy9','5dd59ff22c92eb02e50cb1e18784120a0ef42cb2a7f0588c48a12546f2fc1a6d','{"session":"nan4p4avy9"}',1795260003326);
INSERT INTO "outcome" VALUES(13,'session/prompt nan4p4avy9 p-1','nan4p4avy9','963bd1a16998c2fd4480e645203f73cc406e0f9a1586225ee721a6d4b68c6fb9','{"prompt":"p1","seq":2}',1795260003374);
CREATE TABLE question (
    id          TEXT    NOT NULL PRIMARY KEY,
    session     TEXT    NOT NULL,
    asked       TEXT    NOT NULL,
    answer      TEXT,
    answered_by TEXT,
    answered_at INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "question" VALUES('q6j6bbc9','hmp369g2kx','{"question":"q6j6bbc9","session":"hmp369g2kx","kind":"permission","blocks":"call","call":"c1","options":[{"name":"allow_once","label":"allow once"},{"name":"allow_session","label":"allow in this session"},{"name":"allow_always","label":"allow always"},{"name":"reject_once","label":"deny"}],"permission":"q6j6bbc9","tool":"bash","action":"true","input":{"command":"true"},"cwd":"/home/u/p","grant":"bash(true)","digest":"sha256:b2234ebacfafb1086833a248927a4ff69d5bd470b6fc06dc41976242181b895a","at":1795255453781}','"reject_once"','linger@17327',1795255454760);
INSERT INTO "question" VALUES('qqqdac03','37grq28w2p','{"question":"qqqdac03","session":"37grq28w2p","kind":"permission","blocks":"call","call":"c1","options":[{"name":"allow_once","label":"allow once"},{"name":"allow_session","label":"allow in this session"},{"name":"allow_always","label":"allow always"},{"name":"reject_once","label":"deny"}],"permission":"qqqdac03","tool":"bash","action":"date","input":{"command":"date"},"cwd":"/home/u/p","grant":"bash(date)","digest":"sha256:8ae7b3ef35a97cfb25aa9ff3eb01dc3ace2797bea0da3ef80d48e18899fe15b8","at":1795255453764}',NULL,NULL,NULL);
CREATE TABLE removed (
    session TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO "removed" VALUES('jd6jypey8m');
CREATE TABLE scratch (
    session TEXT    NOT NULL,
    stream  TEXT    NOT NULL,
    block   INTEGER NOT NULL,
    offset  INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    text    TEXT    NOT NULL,
    PRIMARY KEY (session, stream, block, offset)
) STRICT, WITHOUT ROWID;
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,0,'text','word 1 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,7,'text','word 2 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,14,'text','word 3 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,21,'text','word 4 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,28,'text','word 5 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,35,'text','word 6 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,42,'text','word 7 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,49,'text','word 8 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,56,'text','word 9 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,63,'text','word 10 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,71,'text','word 11 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,79,'text','word 12 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,87,'text','word 13 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,95,'text','word 14 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,103,'text','word 15 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,111,'text','word 16 ');
INSERT INTO "scratch" VALUES('m55bcbgrhy','m2',0,119,'text','word 17 ');
CREATE TABLE session (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    UNIQUE,
    cwd        TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    env        TEXT    NOT NULL,
    fold       TEXT    NOT NULL,
    size       INTEGER NOT NULL,
    parent     TEXT,
    origin     TEXT,
    origin_seq INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "session" VALUES('2g5m9485z9','cut','/home/u/p','idle',1795280501252,'{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"}','{"head":6,"cwd":"/home/u/p","model":"demo/demo","mode":"ask","name":"cut","title":"slow: 400","created_at":1795280499734,"updated_at":1795280501252,"grants":[],"instructions":[],"queue":[],"held":true,"turn":null,"stop_reason":"cancelled","before_turn":2,"usage":{"input_tokens":10,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_micros":30,"cost_at_least":true},"counts":{"turns":1,"messages":2,"calls":0,"prompts":1},"sum":"53454c3b"}',1371,NULL,NULL,NULL);
INSERT INTO "session" VALUES('37grq28w2p','asks','/home/u/p','waiting',1795255455069,'{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"}','{"head":7,"cwd":"/home/u/p","model":"demo/demo","mode":"ask","name":"asks","title":"run: date","created_at":1795255453393,"updated_at":1795255455069,"grants":[],"instructions":[],"queue":[{"prompt":"p2","seq":7,"when":"queue"}],"held":false,"turn":{"id":"t1","steps":1,"usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"calls":[{"id":"c1","started":false,"finished":false}],"questions":[{"id":"qqqdac03","seq":6,"call":"c1","digest":"sha256:8ae7b3ef35a97cfb25aa9ff3eb01dc3ace2797bea0da3ef80d48e18899fe15b8","options":{"permission":"bash(date)"},"answer":null}],"crashes":0,"offered":false,"paused":false,"key_missing":false,"cut":false,"interrupted":null},"stop_reason":null,"before_turn":2,"usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"counts":{"turns":1,"messages":2,"calls":1,"prompts":2},"sum":"44c1e0ed"}',1541,NULL,NULL,NULL);
INSERT INTO "session" VALUES('3c725prqhm',NULL,'/home/u/p','idle',1795255453386,'{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"}','{"head":10,"cwd":"/home/u/p","model":"demo/demo","mode":"auto","name":null,"title":"run: echo hello","created_at":1795255452864,"updated_at":1795255453386,"grants":[],"instructions":[],"queue":[],"held":false,"turn":null,"stop_reason":"end_turn","before_turn":2,"usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"counts":{"turns":1,"messages":4,"calls":1,"prompts":1},"sum":"18997306"}',2029,NULL,NULL,NULL);
INSERT INTO "session" VALUES('75fajtjvpb','paid','/home/u/p','idle',1795280499673,'{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"}','{"head":6,"cwd":"/home/u/p","model":"demo/demo","mode":"ask","name":"paid","title":"say: Good day","created_at":1795280499616,"updated_at":1795280499673,"grants":[],"instructions":[],"queue":[],"held":false,"turn":null,"stop_reason":"end_turn","before_turn":2,"usage":{"input_tokens":11,"output_tokens":9,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_micros":168},"counts":{"turns":1,"messages":2,"calls":0,"prompts":1},"sum":"c6b2440c"}',1226,NULL,NULL,NULL);
INSERT INTO "session" VALUES('hmp369g2kx','answered','/home/u/p','idle',1795255454958,'{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"}','{"head":11,"cwd":"/home/u/p","model":"demo/demo","mode":"ask","name":"answered","title":"run: true","created_at":1795255453418,"updated_at":1795255454958,"grants":[],"instructions":[],"queue":[],"held":false,"turn":null,"stop_reason":"end_turn","before_turn":2,"usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"counts":{"turns":1,"messages":4,"calls":1,"prompts":1},"sum":"9ce89bf5"}',2503,NULL,NULL,NULL);
INSERT INTO "session" VALUES('m55bcbgrhy',NULL,'/home/u/p','running',1795255453412,'{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"}','{"head":4,"cwd":"/home/u/p","model":"demo/demo","mode":"auto","name":null,"title":"slow: 200","created_at":1795255453409,"updated_at":1795255453412,"grants":[],"instructions":[],"queue":[],"held":false,"turn":{"id":"t1","steps":0,"usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"calls":[],"crashes":0,"offered":false,"paused":false,"key_missing":false,"cut":false,"interrupted":null},"stop_reason":null,"before_turn":2,"usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"counts":{"turns":1,"messages":1,"calls":0,"prompts":1},"sum":"469f47f7"}',564,NULL,NULL,NULL);
INSERT INTO "session" VALUES('nan4p4avy9','sees','/home/u/p','idle',1795260003449,'{"HOME":"/home/u/p","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","SHELL":"/bin/bash"}','{"head":6,"cwd":"/home/u/p","model":"demo/demo","mode":"auto","name":"sees","title":"say: a dot","created_at":1795260003323,"updated_at":1795260003449,"grants":[],"instructions":[],"queue":[],"held":false,"turn":null,"stop_reason":"end_turn","before_turn":2,"usage":{"input_tokens":0,"output_tokens":0,"cached_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"counts":{"turns":1,"messages":2,"calls":0,"prompts":1},"sum":"0edc2520"}',1381,NULL,NULL,NULL);
CREATE TABLE stray (
    hash TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO "stray" VALUES('sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
CREATE TABLE usage (
    day         INTEGER NOT NULL,
    session     TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    answers     INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cached      INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    cost        INTEGER,
    at_least    INTEGER NOT NULL,
    PRIMARY KEY (day, session, model)
) STRICT, WITHOUT ROWID;
INSERT INTO "usage" VALUES(20778,'','demo/demo',2,10,8,0,0,0,150,1);
INSERT INTO "usage" VALUES(20778,'2g5m9485z9','demo/demo',1,10,0,0,0,0,30,1);
INSERT INTO "usage" VALUES(20778,'37grq28w2p','demo/demo',1,0,0,0,0,0,NULL,1);
INSERT INTO "usage" VALUES(20778,'3c725prqhm','demo/demo',2,0,0,0,0,0,NULL,1);
INSERT INTO "usage" VALUES(20778,'75fajtjvpb','demo/demo',1,11,9,0,0,0,168,0);
INSERT INTO "usage" VALUES(20778,'hmp369g2kx','demo/demo',2,0,0,0,0,0,NULL,1);
INSERT INTO "usage" VALUES(20778,'nan4p4avy9','demo/demo',1,0,0,0,0,0,NULL,1);
CREATE UNIQUE INDEX event_seq ON event (session, seq);
CREATE UNIQUE INDEX event_stream ON event (session, stream) WHERE stream IS NOT NULL;
CREATE INDEX session_updated ON session (updated_at);
CREATE INDEX session_cwd ON session (cwd, updated_at);
CREATE INDEX question_open ON question (session) WHERE answer IS NULL;
CREATE INDEX question_session ON question (session);
CREATE INDEX outcome_session ON outcome (session);
CREATE INDEX blob_hash ON blob (hash, size);
CREATE INDEX usage_session ON usage (session);
COMMIT;
PRAGMA user_version=1;
