/* SPDX-License-Identifier: MIT */
/*
 * parser.y - how the words of MDL go together.
 *
 * Owns the grammar and what is said where it is broken. Makes trees (build.c),
 * knows nothing of what names mean. Keywords are names as well wherever a name is
 * wanted; only those that begin a statement are not.
 *
 * After an error it goes on behind the next ';' or '*)', or the '}' of what it
 * was in, so that a text's errors are told in one go.
 */
%require "3.8"
%define api.pure full
%define api.prefix {mdl_yy}
%define api.location.type {struct mdl_place}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%param {struct parser *p}
%initial-action { @$ = (struct mdl_place){p->source->file, 1, 1}; };

%code requires {
#include "mutator/mdl/private.h"
#include "mutator/mdl/tree.h"
}

%code provides {
int mdl_yylex(MDL_YYSTYPE *value, MDL_YYLTYPE *place, void *scanner);
}

%code {
#include <string.h>

#include "mutator/mdl/words.h"

#define YYMAXDEPTH 1000
/* A tree is where it begins; what is empty is where the last word ended. */
#define YYLLOC_DEFAULT(Current, Rhs, N) \
	((Current) = (N) ? YYRHSLOC(Rhs, 1) : YYRHSLOC(Rhs, 0))
/* What could not be built ends everything: p->failed says why. */
#define NEEDS(x)            \
	do {                \
		if (!(x))   \
			YYABORT; \
	} while (0)

static int next_word(MDL_YYSTYPE *value, MDL_YYLTYPE *place, struct parser *p)
{
	int token = mdl_yylex(value, place, p->scanner);

	/* a place for what ends the text, and nothing more where all is lost */
	return p->failed ? 0 : token;
}

#undef yylex
#define yylex next_word

static void mdl_yyerror(const struct mdl_place *place, struct parser *p, const char *message);

/*
 * True if nothing was opened in what an error made us skip: then the next error
 * is one of its own, and worth telling.
 */
static bool skipped_flat(const struct parser *p)
{
	return p->braces == p->error_braces && p->codes == p->error_codes;
}

/* The same in front of a '*)', whose '(*' was skipped. */
static bool skipped_code(const struct parser *p)
{
	return p->braces == p->error_braces && p->codes == p->error_codes + 1;
}
}

%union {
	const char *text;
	struct joined string;
	int64_t number;
	int op;
	bool yes;
	enum mdl_vartype type;
	enum mdl_extent extent;
	struct mdl_expr *expr;
	struct exprs exprs;
	struct words words;
	struct mdl_code *code;
	struct code_chain codes;
	struct mdl_statement *statement;
	struct statement_chain statements;
	struct mdl_list *list;
	struct mdl_constraint *constraint;
	struct metric_parts *metric;
}

%token END 0 "the end of the text"
%token <text> ID "a name" DOLLAR "a $name" PATH "a path like /Code/*"
%token <string> STRING "a string"
%token <number> INTEGER "a number"
%token OPEN "'(*'" CLOSE "'*)'"
%token INCREMENT "'++'" DECREMENT "'--'" ADD_TO "'+='" TAKE_FROM "'-='"
%token SHIFT_LEFT "'<<'" SHIFT_RIGHT "'>>'" AT_MOST "'<='" AT_LEAST "'>='"
%token EQUAL "'=='" UNEQUAL "'!='" BOTH "'&&'" EITHER "'||'"
/* These begin statements, and are names nowhere. */
%token <text> IF "if" ELSE "else" FOREACH "foreach" APPEND "append" PREPEND "prepend"
%token <text> AGGREGATE_OPERATOR "aggregateOperator" BASE "base" CONSTRAINED "constrained"
%token <text> CONSTRAINT "constraint" COUNTER "counter" DEFAULT "default"
%token <text> DESCRIPTION "description" DISTRIBUTION "distribution" EXCLUSIVE "exclusive"
%token <text> FLAVOR "flavor" IN "in" INCLUSIVE "inclusive" IS "is" ITEMS "items"
%token <text> LIBRARY "library" LIST "list" METRIC "metric" MODE "mode" NAME "name"
%token <text> POST_INSN "postInsn" PRE_INSN "preInsn" PROCESS_TIMER "processTimer"
%token <text> REPLACE "replace" RESOURCE_LIST "resourceList" STREAM "stream" STYLE "style"
%token <text> THREAD_TIMER "threadTimer" UNCONSTRAINED "unconstrained" UNITS "units"
%token <text> UNITS_TYPE "unitsType" VOID "void" WALL_TIMER "wallTimer"

/* C11 6.5 */
%right '=' ADD_TO TAKE_FROM
%right '?' ':'
%left EITHER
%left BOTH
%left '|'
%left '^'
%left '&'
%left EQUAL UNEQUAL
%left '<' '>' AT_MOST AT_LEAST
%left SHIFT_LEFT SHIFT_RIGHT
%left '+' '-'
%left '*' '/' '%'
%precedence UNARY
%precedence '.' '[' INCREMENT DECREMENT
%precedence THEN
%precedence ELSE

%type <text> id
%type <string> strings
%type <expr> expr list_item
%type <exprs> args some_args list_items some_list_items
%type <words> flavor ids
%type <type> vartype
%type <extent> extent
%type <yes> where insn unconstrained
%type <code> code code_block
%type <codes> codes
%type <statement> statement block guard insert
%type <statements> statements
%type <list> list_parts
%type <constraint> constraint
%type <metric> attributes

%%

file:
	%empty
|	file item
;

item:
	list
|	constraint              { NEEDS(unit_add_constraint(p, $1)); }
|	metric
|	statement               { NEEDS(unit_add_statement(p, $1)); }
|	error ';'               { if (skipped_flat(p)) yyerrok; }
|	error '}'               { if (skipped_flat(p)) yyerrok; }
;

id:
	ID
|	AGGREGATE_OPERATOR | BASE | CONSTRAINED | CONSTRAINT | COUNTER | DEFAULT | DESCRIPTION
|	DISTRIBUTION | EXCLUSIVE | FLAVOR | IN | INCLUSIVE | IS | ITEMS | LIBRARY | LIST | METRIC
|	MODE | NAME | POST_INSN | PRE_INSN | PROCESS_TIMER | REPLACE | RESOURCE_LIST | STREAM | STYLE
|	THREAD_TIMER | UNCONSTRAINED | UNITS | UNITS_TYPE | VOID | WALL_TIMER
;

ids:
	id                      { $$ = (struct words){0}; NEEDS(build_words_add(p, &$$, $1)); }
|	ids ',' id              { $$ = $1; NEEDS(build_words_add(p, &$$, $3)); }
;

strings:
	STRING
|	strings STRING          { $$ = $1; NEEDS(build_joined_add(p, &$$, &$2)); }
;

flavor:
	FLAVOR ids ';'                  { $$ = $2; }
|	FLAVOR '{' ids '}' ';'          { $$ = $3; }
|	FLAVOR '=' '{' ids '}' ';'      { $$ = $4; }
;

/* ------------------------------------------------------------------ lists */

list:
	list_word id IS id '{' list_parts '}'
		{ NEEDS(unit_add_list(p, $6, &@2, $2, &@4, $4)); }
|	list_word id IS id '{' list_parts error '}'
;

list_word: LIST | RESOURCE_LIST ;

list_parts:
	%empty                  { NEEDS($$ = build_declaration(p, sizeof(*$$))); }
|	list_parts ITEMS '{' list_items '}' ';'
		{ $$ = $1; NEEDS(list_add_items(p, $$, &$4)); }
|	list_parts ITEMS '{' error '}' ';'
		{ $$ = $1; }
|	list_parts flavor       { $$ = $1; }
|	list_parts LIBRARY id ';'
		{ $$ = $1; list_set_library(p, $$, &@3, $3); }
|	list_parts error ';'    { $$ = $1; if (skipped_flat(p)) yyerrok; }
;

list_items:
	%empty                  { $$ = (struct exprs){0}; }
|	some_list_items
;

some_list_items:
	list_item               { $$ = (struct exprs){0}; NEEDS(build_exprs_add(p, &$$, $1)); }
|	some_list_items ',' list_item
		{ $$ = $1; NEEDS(build_exprs_add(p, &$$, $3)); }
;

list_item:
	STRING                  { NEEDS($$ = build_string(p, &@1, $1.text, $1.size)); }
|	INTEGER                 { NEEDS($$ = build_number(p, &@1, $1)); }
|	'-' INTEGER             { NEEDS($$ = build_number(p, &@1, (int64_t)(0 - (uint64_t)$2))); }
;

/* ------------------------------------------------------------ constraints */

constraint:
	CONSTRAINT id extent PATH IS DEFAULT ';'
		{ NEEDS($$ = build_constraint(p, &@2, $2, $3, &@4, $4, MDL_DEFAULT)); }
|	CONSTRAINT id extent PATH IS COUNTER block
		{ NEEDS($$ = build_constraint(p, &@2, $2, $3, &@4, $4, MDL_FLAG)); $$->body = $7; }
|	CONSTRAINT id extent PATH IS REPLACE vartype block
		{
			NEEDS($$ = build_constraint(p, &@2, $2, $3, &@4, $4, MDL_REPLACE));
			$$->type = $7;
			$$->body = $8;
		}
|	CONSTRAINT id error block
		{ NEEDS($$ = build_constraint(p, &@2, $2, MDL_AS_WRITTEN, &@2, "/Code", MDL_FLAG)); }
|	CONSTRAINT id extent PATH error block
		{ NEEDS($$ = build_constraint(p, &@2, $2, $3, &@4, $4, MDL_FLAG)); }
;

extent:
	%empty                  { $$ = MDL_AS_WRITTEN; }
|	INCLUSIVE               { $$ = MDL_INCLUSIVE; }
|	EXCLUSIVE               { $$ = MDL_EXCLUSIVE; }
;

vartype:
	COUNTER                 { $$ = MDL_COUNTER; }
|	WALL_TIMER              { $$ = MDL_WALL_TIMER; }
|	PROCESS_TIMER           { $$ = MDL_PROCESS_TIMER; }
|	THREAD_TIMER            { $$ = MDL_THREAD_TIMER; }
|	DISTRIBUTION            { $$ = MDL_DISTRIBUTION; }
|	STREAM                  { $$ = MDL_STREAM; }
|	VOID                    { $$ = MDL_VOID; }
;

/* ---------------------------------------------------------------- metrics */

metric:
	METRIC id '{' attributes '}'
		{ NEEDS(unit_add_metric(p, $4, &@2, $2)); }
|	METRIC id '{' attributes error '}'
;

attributes:
	%empty                          { NEEDS($$ = build_declaration(p, sizeof(*$$))); }
|	attributes NAME STRING ';'      { $$ = $1; metric_set_text(p, $$, METRIC_NAME, &@2, &@3, $3.text); }
|	attributes UNITS id ';'         { $$ = $1; metric_set_text(p, $$, METRIC_UNITS, &@2, &@3, $3); }
|	attributes UNITS_TYPE id ';'    { $$ = $1; metric_set_text(p, $$, METRIC_UNITS_TYPE, &@2, &@3, $3); }
|	attributes MODE id ';'          { $$ = $1; metric_set_text(p, $$, METRIC_MODE, &@2, &@3, $3); }
|	attributes DESCRIPTION strings ';'
		{ $$ = $1; metric_set_text(p, $$, METRIC_DESCRIPTION, &@2, &@3, $3.text); }
|	attributes AGGREGATE_OPERATOR id ';'
		{ $$ = $1; metric_set_aggregate(p, $$, &@2, &@3, $3); }
|	attributes STYLE id ';'         { $$ = $1; metric_set_style(p, $$, &@2, &@3, $3); }
|	attributes flavor               { $$ = $1; NEEDS(metric_add_flavors(p, $$, &$2)); }
|	attributes vartype id ';'       { $$ = $1; NEEDS(metric_add_variable(p, $$, &@3, $2, $3)); }
|	attributes CONSTRAINT id ';'    { $$ = $1; NEEDS(metric_add_use(p, $$, &@3, $3, NULL)); }
|	attributes constraint
		{ $$ = $1; NEEDS(metric_add_use(p, $$, &$2->place, $2->name, $2)); }
|	attributes extent BASE IS extent vartype block
		{ $$ = $1; metric_set_base(p, $$, &@3, $2, &@5, $5, $6, $7); }
|	attributes extent BASE IS error block
		{ $$ = $1; $$->metric.base = $6; }
|	attributes error block          { $$ = $1; }
|	attributes error ';'            { $$ = $1; if (skipped_flat(p)) yyerrok; }
;

/* ------------------------------------------------------------- statements */

block:
	'{' statements '}'
		{ NEEDS($$ = build_statement(p, MDL_BLOCK, &@1)); $$->first = $2.first; }
|	'{' statements error '}'
		{ NEEDS($$ = build_statement(p, MDL_BLOCK, &@1)); $$->first = $2.first; }
;

statements:
	%empty                  { $$ = (struct statement_chain){0}; }
|	statements statement
		{
			$$ = $1;
			if ($$.last)
				$$.last->next = $2;
			else
				$$.first = $2;
			$$.last = $2;
		}
|	statements error CLOSE  { $$ = $1; if (skipped_code(p)) yyerrok; }
;

statement:
	block
|	FOREACH id IN expr statement
		{
			NEEDS($$ = build_statement(p, MDL_FOREACH, &@2));
			$$->variable = $2;
			$$->expr = $4;
			$$->then = $5;
		}
|	IF '(' expr ')' statement %prec THEN
		{
			NEEDS($$ = build_statement(p, MDL_IF, &@1));
			$$->expr = $3;
			$$->then = $5;
		}
|	IF '(' expr ')' statement ELSE statement
		{
			NEEDS($$ = build_statement(p, MDL_IF, &@1));
			$$->expr = $3;
			$$->then = $5;
			$$->otherwise = $7;
		}
|	insert
|	guard
;

insert:
	where insn expr unconstrained code_block
		{
			NEEDS($$ = build_statement(p, MDL_INSERT, &@1));
			$$->prepend = $1;
			$$->post_insn = $2;
			$$->expr = $3;
			$$->unconstrained = $4;
			$$->code = $5;
		}
;

where:
	APPEND                  { $$ = false; }
|	PREPEND                 { $$ = true; }
;

insn:
	PRE_INSN                { $$ = false; }
|	POST_INSN               { $$ = true; }
;

unconstrained:
	%empty                  { $$ = false; }
|	CONSTRAINED             { $$ = false; }
|	UNCONSTRAINED           { $$ = true; }
;

guard:
	code_block
		{ NEEDS($$ = build_statement(p, MDL_GUARD, &@1)); $$->code = $1; }
;

/* ------------------------------------------------------------------- code */

code_block:
	OPEN codes CLOSE
		{ NEEDS($$ = build_code(p, MDL_CODE_BLOCK, &@1)); $$->first = $2.first; }
|	OPEN codes error CLOSE
		{ NEEDS($$ = build_code(p, MDL_CODE_BLOCK, &@1)); $$->first = $2.first; }
;

codes:
	%empty                  { $$ = (struct code_chain){0}; }
|	codes code
		{
			$$ = $1;
			if ($$.last)
				$$.last->next = $2;
			else
				$$.first = $2;
			$$.last = $2;
		}
|	codes error ';'         { $$ = $1; if (skipped_flat(p)) yyerrok; }
;

code:
	expr ';'
		{ NEEDS($$ = build_code(p, MDL_CODE_EXPR, &@1)); $$->expr = $1; }
|	IF '(' expr ')' code %prec THEN
		{
			NEEDS($$ = build_code(p, MDL_CODE_IF, &@1));
			$$->expr = $3;
			$$->then = $5;
		}
|	IF '(' expr ')' code ELSE code
		{
			NEEDS($$ = build_code(p, MDL_CODE_IF, &@1));
			$$->expr = $3;
			$$->then = $5;
			$$->otherwise = $7;
		}
|	'{' codes '}'
		{ NEEDS($$ = build_code(p, MDL_CODE_BLOCK, &@1)); $$->first = $2.first; }
;

/* ------------------------------------------------------------ expressions */

expr:
	INTEGER                 { NEEDS($$ = build_number(p, &@1, $1)); }
|	STRING                  { NEEDS($$ = build_string(p, &@1, $1.text, $1.size)); }
|	id                      { NEEDS($$ = build_name(p, &@1, $1)); }
|	DOLLAR                  { NEEDS($$ = build_dollar(p, &@1, $1)); }
|	id '(' args ')'         { NEEDS($$ = build_call(p, &@1, $1, &$3)); }
|	'(' expr ')'            { $$ = $2; }
|	expr '.' id             { NEEDS($$ = build_attribute(p, $1, &@3, $3)); }
|	expr '[' expr ']'       { NEEDS($$ = build_index(p, $1, $3)); }
|	expr INCREMENT          { NEEDS($$ = build_step(p, $1, 1)); }
|	expr DECREMENT          { NEEDS($$ = build_step(p, $1, -1)); }
|	'!' expr %prec UNARY    { NEEDS($$ = build_unary(p, &@1, '!', $2)); }
|	'~' expr %prec UNARY    { NEEDS($$ = build_unary(p, &@1, '~', $2)); }
|	'-' expr %prec UNARY    { NEEDS($$ = build_unary(p, &@1, '-', $2)); }
|	'&' expr %prec UNARY    { NEEDS($$ = build_address(p, &@1, $2)); }
|	expr '*' expr           { NEEDS($$ = build_binary(p, MDL_OP_MUL, $1, $3)); }
|	expr '/' expr           { NEEDS($$ = build_binary(p, MDL_OP_DIV, $1, $3)); }
|	expr '%' expr           { NEEDS($$ = build_binary(p, MDL_OP_REM, $1, $3)); }
|	expr '+' expr           { NEEDS($$ = build_binary(p, MDL_OP_ADD, $1, $3)); }
|	expr '-' expr           { NEEDS($$ = build_binary(p, MDL_OP_SUB, $1, $3)); }
|	expr SHIFT_LEFT expr    { NEEDS($$ = build_binary(p, MDL_OP_SHL, $1, $3)); }
|	expr SHIFT_RIGHT expr   { NEEDS($$ = build_binary(p, MDL_OP_SHR, $1, $3)); }
|	expr '<' expr           { NEEDS($$ = build_binary(p, MDL_OP_LT, $1, $3)); }
|	expr AT_MOST expr       { NEEDS($$ = build_binary(p, MDL_OP_LE, $1, $3)); }
|	expr '>' expr           { NEEDS($$ = build_binary(p, MDL_OP_GT, $1, $3)); }
|	expr AT_LEAST expr      { NEEDS($$ = build_binary(p, MDL_OP_GE, $1, $3)); }
|	expr EQUAL expr         { NEEDS($$ = build_binary(p, MDL_OP_EQ, $1, $3)); }
|	expr UNEQUAL expr       { NEEDS($$ = build_binary(p, MDL_OP_NE, $1, $3)); }
|	expr '&' expr           { NEEDS($$ = build_binary(p, MDL_OP_AND, $1, $3)); }
|	expr '^' expr           { NEEDS($$ = build_binary(p, MDL_OP_XOR, $1, $3)); }
|	expr '|' expr           { NEEDS($$ = build_binary(p, MDL_OP_OR, $1, $3)); }
|	expr BOTH expr          { NEEDS($$ = build_binary(p, MDL_OP_BOTH, $1, $3)); }
|	expr EITHER expr        { NEEDS($$ = build_binary(p, MDL_OP_EITHER, $1, $3)); }
|	expr '?' expr ':' expr  { NEEDS($$ = build_choice(p, $1, $3, $5)); }
|	expr '=' expr           { NEEDS($$ = build_assign(p, $1, 0, $3)); }
|	expr ADD_TO expr        { NEEDS($$ = build_assign(p, $1, '+', $3)); }
|	expr TAKE_FROM expr     { NEEDS($$ = build_assign(p, $1, '-', $3)); }
;

args:
	%empty                  { $$ = (struct exprs){0}; }
|	some_args
;

some_args:
	expr                    { $$ = (struct exprs){0}; NEEDS(build_exprs_add(p, &$$, $1)); }
|	some_args ',' expr      { $$ = $1; NEEDS(build_exprs_add(p, &$$, $3)); }
;

%%

enum { EXPECTED_MOST = 120 };

/* Called when the stack is full. */
static void mdl_yyerror(const struct mdl_place *place, struct parser *p, const char *message)
{
	(void)message;
	parser_error(p, place, "this is nested too deeply");
}

static int yyreport_syntax_error(const yypcontext_t *context, struct parser *p)
{
	yysymbol_kind_t expected[EXPECTED_MOST];
	const char *names[EXPECTED_MOST];
	yysymbol_kind_t token = yypcontext_token(context);
	int count = yypcontext_expected_tokens(context, expected, EXPECTED_MOST);

	for (int i = 0; i < count; i++)
		names[i] = yysymbol_name(expected[i]);
	p->error_braces = p->braces - (p->last_token == '{');
	p->error_codes = p->codes - (p->last_token == OPEN);
	if (token != YYSYMBOL_YYEMPTY && !p->failed)
		unexpected(p, yypcontext_location(context), token == YYSYMBOL_YYEOF, names,
			   count > 0 ? (size_t)count : 0);
	return 0;
}

void parse(struct parser *p, char *buffer, size_t size)
{
	int code = lexer_start(p, buffer, size);

	if (code) {
		p->failed = code;
		return;
	}
	/* 2: no memory, or nested too deeply; then there is a message */
	if (mdl_yyparse(p) == 2 && !p->messages.count && !p->failed)
		p->failed = DINST_NO_MEMORY;
	lexer_stop(p);
}
