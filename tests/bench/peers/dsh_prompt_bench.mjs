// Needs: Node 20, and in the folder it runs in: npm install @deepseek-ai/dsh-system-prompt@0.1.0-rc.8 @deepseek-ai/dsh-scope@0.1.0-rc.8 @deepseek-ai/cordis@4.0.4
// A program, not a test; it stays as it was given. side_by_side.py copies it to that folder (--dsh).
import { Context } from '@deepseek-ai/cordis'
import SystemPrompt, { renderPrompt, renderContextSections } from '@deepseek-ai/dsh-system-prompt'
import { createScope, scopeOf, scopeTarget } from '@deepseek-ai/dsh-scope'
const NSEC=30, NCTX=10, NVAR=5, NTOOL=Number(process.env.NTOOL??20), DEPTH=Number(process.env.DEPTH??3)
const ctx = new Context()
await ctx.plugin(SystemPrompt, {persona:'You are {{v0}}.'})
let leaf
await ctx.plugin(Object.assign((inner)=>{
  for (let i=0;i<NSEC;i++) inner.systemPrompt.section({name:`s${i}`,order:100+i,text: i%2?`Section ${i} uses {{v${i%NVAR}}} and more guidance text here.`:()=>`Section ${i} dynamic with {{v${i%NVAR}}} text.`})
  for (let i=0;i<NCTX;i++) inner.systemPrompt.context({name:`c${i}`,order:100+i,text:()=>`ctx ${i}`})
  for (let i=0;i<NVAR;i++) inner.systemPrompt.variable(`v${i}`,()=>`value${i}`)
  const schemas=[]; for(let i=0;i<NTOOL;i++) schemas.push({name:`tool_${i}`,description:`does thing ${i}`,parameters:{type:'object',properties:{path:{type:'string',description:'path'},limit:{type:'integer',minimum:0},opts:{type:'object',properties:{a:{type:'string'},b:{type:'array',items:{type:'string'}}}}},required:['path']}})
  inner.systemPrompt.tools(()=>({schemas}))
  let parent=inner, pk
  for(let d=0;d<DEPTH;d++){ const k={d}; const s=createScope(parent,k, pk?{parent:pk}:undefined); s.ctx.systemPrompt.section({name:`s${d}`,order:100+d,text:`override at depth ${d}`}); pk=k; leaf=k; parent=s.ctx }
},{inject:['systemPrompt']}))
async function one(){ const a=await ctx.systemPrompt.assemble({scope:leaf}); const p=renderPrompt(a); const c=renderContextSections(a); return p.length+c.length+a.tools.length }
console.log(await one())
for(let i=0;i<2000;i++) await one()
const N=5000, t=process.hrtime.bigint(); for(let i=0;i<N;i++) await one(); const dt=Number(process.hrtime.bigint()-t)/N/1000
console.log(`assemble+render: ${dt.toFixed(1)} us`)
// event dispatch
const heard=[0]
for(let i=0;i<100;i++) ctx.on('probe/ping',()=>{heard[0]++})
const carrier=()=>scopeTarget({},leaf)
for(let i=0;i<2000;i++) ctx.emit(carrier(),'probe/ping',1)
const t2=process.hrtime.bigint(); for(let i=0;i<5000;i++) ctx.emit(carrier(),'probe/ping',1); console.log(`emit 100 listeners depth ${DEPTH}: ${(Number(process.hrtime.bigint()-t2)/5000/1000).toFixed(1)} us`)
