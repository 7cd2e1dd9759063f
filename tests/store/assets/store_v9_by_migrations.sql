BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0009');
CREATE TABLE curves (
	trial_key VARCHAR NOT NULL, 
	step BIGINT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	tokens BIGINT NOT NULL, 
	flops DOUBLE NOT NULL, 
	train_loss DOUBLE, 
	val_loss DOUBLE, 
	CONSTRAINT pk_curves PRIMARY KEY (trial_key, step), 
	CONSTRAINT fk_curves_trial_key FOREIGN KEY(trial_key) REFERENCES trials ("key") ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "curves" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',0,0.0,0,0.0,NULL,7.75);
INSERT INTO "curves" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',10,0.5,20480,1500000000000.0,7.5,NULL);
INSERT INTO "curves" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',20,1.0,40960,3000000000000.0,7.375,7.5);
INSERT INTO "curves" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',30,1.5,61440,4500000000000.0,7.25,NULL);
INSERT INTO "curves" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',40,2.0,81920,6000000000000.0,7.125,7.25);
INSERT INTO "curves" VALUES('f2cad0e446a1ad5414403c8e329d7be0301b507d2e9b1c85960dc787b52b2414',0,0.0,0,0.0,NULL,7.75);
INSERT INTO "curves" VALUES('f2cad0e446a1ad5414403c8e329d7be0301b507d2e9b1c85960dc787b52b2414',10,0.5,20480,1500000000000.0,7.5,NULL);
CREATE TABLE environments (
	id INTEGER NOT NULL, 
	hash VARCHAR NOT NULL, 
	content JSON NOT NULL, 
	CONSTRAINT pk_environments PRIMARY KEY (id), 
	CONSTRAINT uq_environments_hash UNIQUE (hash)
);
INSERT INTO "environments" VALUES(1,'a17c2c3b7de7c02064a275ee436fcbdedd78757e32ec357cc856ca08b7189e2a','{"versions": {"python": "3.12.1", "torch": "2.13.0"}, "device": "cpu: AMD EPYC, 2 cores", "host": "lab", "git_commit": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "git_clean": false, "command": "ablate study spaces/simplify_block.yaml"}');
CREATE TABLE leases (
	study VARCHAR NOT NULL, 
	token VARCHAR NOT NULL, 
	host VARCHAR NOT NULL, 
	pid INTEGER NOT NULL, 
	process_started DOUBLE NOT NULL, 
	acquired_at DATETIME NOT NULL, 
	heartbeat DATETIME NOT NULL, processes VARCHAR DEFAULT '' NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (study)
);
CREATE TABLE marks (
	kind VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	starred BOOLEAN NOT NULL, 
	tags JSON NOT NULL, 
	note TEXT NOT NULL, 
	updated_at DATETIME NOT NULL, 
	CONSTRAINT pk_marks PRIMARY KEY (kind, name)
);
CREATE TABLE recordings (
	trial_key VARCHAR NOT NULL, 
	step BIGINT NOT NULL, 
	content JSON NOT NULL, 
	CONSTRAINT pk_recordings PRIMARY KEY (trial_key, step), 
	CONSTRAINT fk_recordings_trial_key_trials FOREIGN KEY(trial_key) REFERENCES trials ("key") ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "recordings" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',0,'{"weights": {"block 1 mixer": 2.5}, "map": {"block 1 mixer": [[1.0, null], [0.25, 0.5]]}}');
INSERT INTO "recordings" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',10,'{"weights": {"block 1 mixer": 3.5}, "map": {"block 1 mixer": [[1.0, null], [0.25, 0.5]]}}');
INSERT INTO "recordings" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',20,'{"weights": {"block 1 mixer": 4.5}, "map": {"block 1 mixer": [[1.0, null], [0.25, 0.5]]}}');
INSERT INTO "recordings" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',30,'{"weights": {"block 1 mixer": 5.5}, "map": {"block 1 mixer": [[1.0, null], [0.25, 0.5]]}}');
INSERT INTO "recordings" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',40,'{"weights": {"block 1 mixer": 6.5}, "map": {"block 1 mixer": [[1.0, null], [0.25, 0.5]]}}');
INSERT INTO "recordings" VALUES('f2cad0e446a1ad5414403c8e329d7be0301b507d2e9b1c85960dc787b52b2414',0,'{"weights": {"block 1 mixer": 2.5}, "map": {"block 1 mixer": [[1.0, null], [0.25, 0.5]]}}');
INSERT INTO "recordings" VALUES('f2cad0e446a1ad5414403c8e329d7be0301b507d2e9b1c85960dc787b52b2414',10,'{"weights": {"block 1 mixer": 3.5}, "map": {"block 1 mixer": [[1.0, null], [0.25, 0.5]]}}');
CREATE TABLE studies (
	id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	question TEXT NOT NULL, 
	source TEXT NOT NULL, 
	space JSON NOT NULL, 
	text TEXT NOT NULL, 
	objective JSON NOT NULL, 
	baseline VARCHAR NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, trivial JSON, declared_before JSON, 
	CONSTRAINT pk_studies PRIMARY KEY (id), 
	CONSTRAINT uq_studies_name UNIQUE (name)
);
INSERT INTO "studies" VALUES(1,'simplify_block','Which parts can go?','arXiv:2311.01906','{"name": "simplify_block", "design": {"kind": "leave_one_out", "seeds": 3}}','name: simplify_block
','{"metric": "val_loss", "direction": "minimize", "margin": 0.02}','baseline','2026-11-22 00:14:45.913332','2026-11-22 00:14:45.913332','{"unigram": {"val_loss": 6.25}, "bigram": {"val_loss": 4.5}}',NULL);
CREATE TABLE study_trials (
	study_id INTEGER NOT NULL, 
	trial_key VARCHAR NOT NULL, 
	position INTEGER NOT NULL, 
	variant VARCHAR NOT NULL, 
	seed BIGINT NOT NULL, state VARCHAR DEFAULT 'waiting' NOT NULL, role VARCHAR DEFAULT 'comparison' NOT NULL, 
	CONSTRAINT pk_study_trials PRIMARY KEY (study_id, trial_key), 
	CONSTRAINT fk_study_trials_study_id_variant FOREIGN KEY(study_id, variant) REFERENCES study_variants (study_id, name)
)
 WITHOUT ROWID

;
INSERT INTO "study_trials" VALUES(1,'8c6629c9bd4c4622b32fdb94d79183360af767090e1bd6de3709f3a014a727bb',3,'no_norm',1,'waiting','comparison');
INSERT INTO "study_trials" VALUES(1,'9dcf73147b7adb17af14944e28f26baef9043a12b91312b2837687a809fd46ed',2,'baseline',1,'running','comparison');
INSERT INTO "study_trials" VALUES(1,'cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c',0,'baseline',0,'finished','comparison');
INSERT INTO "study_trials" VALUES(1,'f2cad0e446a1ad5414403c8e329d7be0301b507d2e9b1c85960dc787b52b2414',1,'no_norm',0,'diverged','comparison');
CREATE TABLE study_variants (
	study_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	position INTEGER NOT NULL, 
	variant_hash VARCHAR NOT NULL, 
	settings JSON NOT NULL, 
	CONSTRAINT pk_study_variants PRIMARY KEY (study_id, name), 
	CONSTRAINT fk_study_variants_study_id FOREIGN KEY(study_id) REFERENCES studies (id) ON DELETE CASCADE, 
	CONSTRAINT fk_study_variants_variant_hash FOREIGN KEY(variant_hash) REFERENCES variants (hash)
);
INSERT INTO "study_variants" VALUES(1,'baseline',0,'8ba8496a2525ae171ffd104d632dede6ef418d9b95962a9d88e2fcdbc8d48d24','{"norm": "rms"}');
INSERT INTO "study_variants" VALUES(1,'no_norm',1,'e38613d844f8123c8132b305f9806386ee3b29ff92da7c747cdb8b4e3b37c9db','{"norm": "none"}');
CREATE TABLE trials (
	"key" VARCHAR NOT NULL, 
	variant_hash VARCHAR NOT NULL, 
	seed BIGINT NOT NULL, 
	state VARCHAR NOT NULL, 
	metrics JSON NOT NULL, 
	steps BIGINT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	tokens BIGINT NOT NULL, 
	flops DOUBLE NOT NULL, 
	stopped_at BIGINT, 
	reason TEXT NOT NULL, 
	data_fingerprint VARCHAR NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, 
	environment_id INTEGER, driver VARCHAR DEFAULT '' NOT NULL, attempts INTEGER DEFAULT '1' NOT NULL, worker JSON, 
	CONSTRAINT pk_trials PRIMARY KEY ("key"), 
	CONSTRAINT fk_trials_variant_hash FOREIGN KEY(variant_hash) REFERENCES variants (hash), 
	CONSTRAINT fk_trials_environment_id FOREIGN KEY(environment_id) REFERENCES environments (id)
);
INSERT INTO "trials" VALUES('cc5734776264433cc485d992e08bc68cecc252e50be4a41648e07f207d45757c','8ba8496a2525ae171ffd104d632dede6ef418d9b95962a9d88e2fcdbc8d48d24',0,'finished','{"val_loss": 3.25}',300,12.5,614400,45000000000000.0,NULL,'','3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7','2025-03-30 00:30:00.123456','2025-03-30 00:30:15.123456',1,'',1,NULL);
INSERT INTO "trials" VALUES('f2cad0e446a1ad5414403c8e329d7be0301b507d2e9b1c85960dc787b52b2414','e38613d844f8123c8132b305f9806386ee3b29ff92da7c747cdb8b4e3b37c9db',0,'diverged','{}',300,12.5,614400,45000000000000.0,17,'The loss was not finite.','3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7','2025-03-30 00:30:00.123456','2025-03-30 00:30:15.123456',1,'',1,NULL);
INSERT INTO "trials" VALUES('9dcf73147b7adb17af14944e28f26baef9043a12b91312b2837687a809fd46ed','8ba8496a2525ae171ffd104d632dede6ef418d9b95962a9d88e2fcdbc8d48d24',1,'running','{}',0,0.0,0,0.0,NULL,'','3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7','2026-11-22 00:14:45.924727',NULL,1,'',1,NULL);
CREATE TABLE variants (
	hash VARCHAR NOT NULL, 
	spec JSON NOT NULL, 
	parameters BIGINT NOT NULL, activation_bytes BIGINT, 
	CONSTRAINT pk_variants PRIMARY KEY (hash)
);
INSERT INTO "variants" VALUES('8ba8496a2525ae171ffd104d632dede6ef418d9b95962a9d88e2fcdbc8d48d24','{"model": {"depth": 6}, "task": {}, "training": {}}',1000003,NULL);
INSERT INTO "variants" VALUES('e38613d844f8123c8132b305f9806386ee3b29ff92da7c747cdb8b4e3b37c9db','{"model": {"depth": 6}, "task": {}, "training": {}}',1000003,NULL);
CREATE INDEX ix_study_trials_trial_key ON study_trials (trial_key);
CREATE INDEX ix_study_trials_study_id_state ON study_trials (study_id, state);
COMMIT;
